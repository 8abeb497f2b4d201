package drivertest

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// historiesWith makes a mutant of Log that changes what histories there are.
func historiesWith(change func(q *driver.LogQuery, entries []driver.Entry) []driver.Entry) *mutant {
	return &mutant{logs: func(m *model, ctx context.Context, q *driver.LogQuery) iter.Seq2[driver.Entry, error] {
		return func(yield func(driver.Entry, error) bool) {
			entries, err := m.log(ctx, q)
			if err != nil {
				yield(driver.Entry{}, err)
				return
			}
			if q.Histories != nil {
				entries = change(q, entries)
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}}
}

// historyMistakes are those of a log of several histories.
func historyMistakes() map[string]mistake {
	return map[string]mistake{
		"a limit for all histories together": {"Log/Histories", func() *mutant {
			return historiesWith(func(q *driver.LogQuery, entries []driver.Entry) []driver.Entry {
				if q.Limit > 0 && len(entries) > q.Limit {
					return entries[:q.Limit]
				}
				return entries
			})
		}},
		"histories in the order of keys": {"Log/Histories", func() *mutant {
			return historiesWith(func(_ *driver.LogQuery, entries []driver.Entry) []driver.Entry {
				slices.SortStableFunc(entries, func(a, b driver.Entry) int { return cmp.Compare(a.Version.Key, b.Version.Key) })
				return entries
			})
		}},
		"tombstones without what they deleted": {"Log/Histories", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]driver.Entry)) {
				asked := *q
				asked.PreviousOfDeleted = false
				return &asked, func([]driver.Entry) {}
			}}
		}},
		"histories without their ends": {"Log/LongHistories", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]driver.Entry)) {
				asked := *q
				asked.Histories = slices.Clone(asked.Histories)
				for i := range asked.Histories {
					asked.Histories[i].To = 0
				}
				if asked.Histories != nil {
					asked.To = 0
				}
				return &asked, func([]driver.Entry) {}
			}}
		}},
		"histories of the first member": {"Log/HistoriesOfSomeFields", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]driver.Entry)) {
				return q, func(entries []driver.Entry) {
					for i, e := range entries {
						if v := *e.Version; len(q.Fields) > 1 && v.Data != nil {
							v.Data = []byte(`{` + string(fieldOf(v.Data, q.Fields[0])) + `}`)
							entries[i].Version = &v
						}
					}
				}
			}}
		}},
	}
}
