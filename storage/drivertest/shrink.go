package drivertest

import (
	"slices"

	"github.com/asof/asof/storage/driver"
)

// shrink makes a query smaller for as long as the two still disagree.
func (p *pair) shrink(q *driver.Query) *driver.Query {
	for tries := 0; tries < 300; {
		smaller := false
		for _, candidate := range smallerQueries(q) {
			tries++
			if p.queryDiff(candidate) != "" {
				q, smaller = candidate, true
				break
			}
		}
		if !smaller {
			break
		}
	}
	return q
}

func smallerQueries(q *driver.Query) []*driver.Query {
	var list []*driver.Query
	add := func(change func(q *driver.Query)) {
		smaller := *q
		change(&smaller)
		list = append(list, &smaller)
	}
	if q.After != nil || q.Before != nil || q.Limit > 0 || q.Order != nil {
		add(func(q *driver.Query) { q.After, q.Before, q.Limit, q.Backward, q.Order = nil, nil, 0, false, nil })
	}
	if q.After != nil {
		add(func(q *driver.Query) { q.After = nil })
	}
	if q.Before != nil {
		add(func(q *driver.Query) { q.Before = nil })
	}
	if q.Limit > 0 {
		add(func(q *driver.Query) { q.Limit, q.Backward = 0, false })
	}
	if q.Fields != nil {
		add(func(q *driver.Query) { q.Fields = nil })
	}
	for i := range q.Order {
		add(func(q *driver.Query) {
			q.Order = slices.Delete(slices.Clone(q.Order), i, i+1)
			for _, p := range []**driver.Position{&q.After, &q.Before} {
				if *p != nil {
					*p = &driver.Position{Key: (*p).Key, Values: slices.Delete(slices.Clone((*p).Values), i, i+1)}
				}
			}
		})
	}
	if q.Filter != nil {
		add(func(q *driver.Query) { q.Filter = nil })
		for _, f := range smallerFilters(q.Filter, false) {
			add(func(q *driver.Query) { q.Filter = f })
		}
	}
	return list
}

// smallerFilters lists filters with one node less; inside an element of a
// list, a node may not move out.
func smallerFilters(f driver.Filter, element bool) []driver.Filter {
	var list []driver.Filter
	parts := func(fs []driver.Filter, wrap func([]driver.Filter) driver.Filter) {
		for i, g := range fs {
			list = append(list, g, wrap(slices.Delete(slices.Clone(fs), i, i+1)))
			for _, smaller := range smallerFilters(g, element) {
				replaced := slices.Clone(fs)
				replaced[i] = smaller
				list = append(list, wrap(replaced))
			}
		}
	}
	switch f := f.(type) {
	case driver.And:
		parts(f, func(fs []driver.Filter) driver.Filter { return driver.And(fs) })
	case driver.Or:
		parts(f, func(fs []driver.Filter) driver.Filter { return driver.Or(fs) })
	case driver.Not:
		list = append(list, f.Filter)
		for _, smaller := range smallerFilters(f.Filter, element) {
			list = append(list, driver.Not{Filter: smaller})
		}
	case driver.Any:
		if f.Filter != nil {
			list = append(list, driver.Any{Field: f.Field})
			for _, smaller := range smallerFilters(f.Filter, true) {
				list = append(list, driver.Any{Field: f.Field, Filter: smaller})
			}
		}
	case driver.In:
		for i := range f.Values {
			list = append(list, driver.In{Field: f.Field, Values: slices.Delete(slices.Clone(f.Values), i, i+1)})
		}
	}
	return list
}
