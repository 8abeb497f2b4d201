package drivertest

import (
	"context"
	"iter"

	"github.com/asof/asof/storage/driver"
)

func (m *mutant) Watch(ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
	if m.watch != nil {
		return m.watch(m.model, ctx, q)
	}
	return m.model.Watch(ctx, q)
}

// watchWith makes a mutant that changes what a watch tells. told is called with
// each arrival and passes on what it likes.
func watchWith(begin func() (told func(a driver.Arrival, pass func(driver.Arrival)))) func() *mutant {
	return func() *mutant {
		return &mutant{watch: func(m *model, ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
			return func(yield func(driver.Arrival, error) bool) {
				told, left := begin(), false
				for a, err := range m.Watch(ctx, q) {
					if err != nil {
						yield(a, err)
						return
					}
					told(a, func(a driver.Arrival) { left = left || !yield(a, nil) })
					if left {
						return
					}
				}
			}
		}}
	}
}

// askedWith makes a mutant that begins a watch elsewhere.
func askedWith(change func(m *model, q *driver.WatchQuery)) func() *mutant {
	return func() *mutant {
		return &mutant{watch: func(m *model, ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
			asked := *q
			m.mu.Lock()
			change(m, &asked)
			m.mu.Unlock()
			return m.Watch(ctx, &asked)
		}}
	}
}

// watchMistakes are those that a watch can make.
func watchMistakes() map[string]mistake {
	type pass = func(driver.Arrival)
	return map[string]mistake{
		"deletions do not arrive": {"Watch/FromTheBeginning", watchWith(func() func(driver.Arrival, pass) {
			return func(a driver.Arrival, pass pass) {
				if a.Version == nil || !a.Version.Deleted {
					pass(a)
				}
			}
		})},
		"a version arrives twice": {"Watch/FromTheBeginning", watchWith(func() func(driver.Arrival, pass) {
			var again *driver.Version
			return func(a driver.Arrival, pass pass) {
				if again != nil {
					pass(driver.Arrival{Position: a.Position, Version: again})
					a.Position += "0"
				}
				again = nil
				if v := a.Version; v != nil && v.Number == 2 {
					again = v
				}
				pass(a)
			}
		})},
		"versions of a document change places": {"Watch/FromTheBeginning", watchWith(func() func(driver.Arrival, pass) {
			var held *driver.Version
			return func(a driver.Arrival, pass pass) {
				v := a.Version
				switch {
				case v != nil && held == nil && v.Number == 1 && v.Key == "a":
					held = v
				case v != nil && held != nil && v.Key == held.Key:
					pass(driver.Arrival{Position: a.Position, Version: v})
					pass(driver.Arrival{Position: a.Position + "0", Version: held})
				default:
					pass(a)
				}
			}
		})},
		"loads do not arrive": {"Watch/LoadsArriveWhenTheyAreLoaded", func() *mutant {
			return &mutant{load: func(m *model, ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
				before := len(m.arrivals.list)
				result, err := m.Load(ctx, vs)
				m.mu.Lock()
				defer m.mu.Unlock()
				m.arrivals.list = m.arrivals.list[:min(before, len(m.arrivals.list))]
				return result, err
			}}
		}},
		"of a load, the last version of a document arrives": {"Watch/LoadsArriveWhenTheyAreLoaded", watchWith(func() func(driver.Arrival, pass) {
			return func(a driver.Arrival, pass pass) {
				if v := a.Version; v == nil || v.Op != driver.OpImport || v.Current() {
					pass(a)
				}
			}
		})},
		"another store's position is taken": {"Watch/PositionsOfOthersAreRefused", func() *mutant {
			return &mutant{watch: func(m *model, ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
				asked := *q
				if own := m.arrivals.position(0); len(q.After) == len(own) {
					asked.After = own[:len(own)/2] + q.After[len(own)/2:]
				}
				return m.Watch(ctx, &asked)
			}}
		}},
		"the version of a position is told again": {"Watch/FromAPosition", askedWith(func(m *model, q *driver.WatchQuery) {
			if n, err := m.arrivals.place(q.After); err == nil && n > 0 {
				q.After = m.arrivals.position(n - 1)
			}
		})},
		"from now tells the last": {"Watch/FromNow", askedWith(func(m *model, q *driver.WatchQuery) {
			if n := len(m.arrivals.list); q.FromNow && n > 0 {
				*q = driver.WatchQuery{Collections: q.Collections, After: m.arrivals.position(n - 1)}
			}
		})},
		"all collections are told": {"Watch/OnlySomeCollections", askedWith(func(_ *model, q *driver.WatchQuery) {
			q.Collections = nil
		})},
		"positions are forgotten when closed": {"Watch/FromAPosition", func() *mutant {
			return &mutant{open: func(m *model) { m.arrivals.store = newArrivals().store }}
		}},
	}
}
