package drivertest

import (
	"context"
	"iter"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// Watch checks that a watch begins with its position, that positions grow, and
// that the versions of a document come one after the other.
func (c *contract) Watch(ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
	type document struct{ collection, key string }
	return func(yield func(driver.Arrival, error) bool) {
		numbers := make(map[document]int64)
		last, n, ended := q.After, 0, false
		for a, err := range c.Engine.Watch(ctx, q) {
			if ended {
				c.report("Watch went on after an error")
				return
			}
			n++
			v := a.Version
			switch {
			case err != nil:
				ended = true
				c.code("Watch", err, driver.CodeInvalid, driver.CodeNotFound)
				if a != (driver.Arrival{}) {
					c.report("Watch returned %+v with the error %v", a, err)
				}
			case n == 1 && v != nil:
				c.report("Watch began with a version")
			case a.Position < last || a.Position == last && n > 1:
				c.report("Watch returned the position %q after %q", a.Position, last)
			case v != nil:
				d := document{v.Collection, v.Key}
				c.version("Watch", v, true)
				if len(q.Collections) > 0 && !slices.Contains(q.Collections, v.Collection) {
					c.report("Watch of %q returned %s %q", q.Collections, v.Collection, v.Key)
				}
				if before := numbers[d]; before != 0 && v.Number != before+1 {
					c.report("Watch returned %s %q version %d after version %d", v.Collection, v.Key, v.Number, before)
				}
				if len(numbers) < maxKnown {
					numbers[d] = v.Number
				}
			}
			last = a.Position
			if !yield(a, err) {
				return
			}
		}
		if !ended && ctx.Err() == nil {
			c.report("Watch ended by itself")
		}
	}
}
