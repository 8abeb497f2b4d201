package drivertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// mutant is an engine with one mistake: the model, with some methods made wrong.
type mutant struct {
	*model
	commit    func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) // of one write
	commitAll func(m *model, ctx context.Context, ws []driver.Write) ([]*driver.Version, error)
	load      func(m *model, ctx context.Context, vs []driver.Version) (driver.LoadResult, error)
	get       func(m *model, ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error)
	getFields func(m *model, ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error)
	query     func(m *model, ctx context.Context, q *driver.Query) ([]*driver.Version, error)
	log       func(m *model, q *driver.LogQuery) (*driver.LogQuery, func([]*driver.Version) []*driver.Version)
	now       func(m *model) driver.Instant
	rewrite   func(m *model, ctx context.Context, key string, vs []driver.Version) error
	open      func(m *model)
	bare      bool // nothing is refused in front of it
}

func (m *mutant) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	if m.commitAll != nil {
		return m.commitAll(m.model, ctx, ws)
	}
	if m.commit == nil || len(ws) != 1 {
		return m.model.Commit(ctx, ws)
	}
	v, err := m.commit(m.model, ctx, &ws[0])
	if err != nil {
		return nil, err
	}
	return []*driver.Version{v}, nil
}

func (m *mutant) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	if m.load != nil {
		return m.load(m.model, ctx, vs)
	}
	return m.model.Load(ctx, vs)
}

func (m *mutant) Rewrite(ctx context.Context, name, key string, vs []driver.Version) error {
	if m.rewrite != nil && name == collection {
		return m.rewrite(m.model, ctx, key, vs)
	}
	return m.model.Rewrite(ctx, name, key, vs)
}

// rewriteWith is a mutant that does something with each version that it has rewritten.
func rewriteWith(then func(m *model, key string, v driver.Version)) func() *mutant {
	return func() *mutant {
		return &mutant{rewrite: func(m *model, ctx context.Context, key string, vs []driver.Version) error {
			err := m.Rewrite(ctx, collection, key, vs)
			for _, v := range vs {
				if err == nil {
					then(m, key, v)
				}
			}
			return err
		}}
	}
}

// fieldOf returns a member of an object, with its name; nil: it has none.
func fieldOf(data []byte, name string) []byte {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members[name] == nil {
		return nil
	}
	quoted, _ := json.Marshal(name) // a string: it cannot fail
	return append(append(quoted, ':'), members[name]...)
}

func (m *mutant) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if m.get != nil {
		return m.get(m.model, ctx, collection, refs)
	}
	if m.getFields != nil {
		return m.getFields(m.model, ctx, collection, refs, fields)
	}
	return m.model.Get(ctx, collection, refs, fields)
}

func (m *mutant) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	if m.query != nil {
		return m.query(m.model, ctx, q)
	}
	return m.model.Query(ctx, q)
}

func (m *mutant) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	if m.log == nil {
		return m.model.Log(ctx, q)
	}
	return func(yield func(*driver.Version, error) bool) {
		asked, change := m.log(m.model, q)
		versions, err := m.model.log(ctx, asked)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, v := range change(versions) {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func (m *mutant) Now(ctx context.Context) (driver.Instant, error) {
	if m.now != nil {
		return m.now(m.model), nil
	}
	return m.model.Now(ctx)
}

func unchanged(versions []*driver.Version) []*driver.Version { return versions }

// queryWith makes a mutant of Query that changes the query.
func queryWith(change func(q *driver.Query)) func() *mutant {
	return func() *mutant {
		return &mutant{query: func(m *model, ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
			changed := *q
			change(&changed)
			return m.Query(ctx, &changed)
		}}
	}
}

// mistake is a mutant and the test that has to notice it.
type mistake struct {
	caught string
	mutant func() *mutant
}

// mistakes are those that temporal stores have shipped, and some that are
// easily made.
func mistakes() map[string]mistake {
	return map[string]mistake{
		"nothing is refused in front of it": {"Lifecycle/Guarded", func() *mutant { return &mutant{bare: true} }},
		"the filter chooses the version": {"Load/BeforeTheVersionsOfOthers", func() *mutant {
			return &mutant{query: func(m *model, ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
				var found []*driver.Version
				for _, versions := range m.documents[q.Collection] {
					for _, v := range slices.Backward(versions) {
						root, _ := decode(v.Data)
						if v.RecordedAt <= q.At && !v.Deleted && (q.Filter == nil || holds(q.Filter, v, root)) {
							found = append(found, v)
							break
						}
					}
				}
				return found, nil
			}}
		}},
		"before instead of at or before": {"Load/BeforeTheVersionsOfOthers", queryWith(func(q *driver.Query) { q.At-- })},
		"a microsecond too late":         {"Load/BeforeTheVersionsOfOthers", queryWith(func(q *driver.Query) { q.At = min(q.At, driver.Forever-1) + 1 })},
		"a delete hides history": {"Random/Operations", func() *mutant {
			return &mutant{get: func(m *model, ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
				vs, err := m.Get(ctx, collection, refs, nil)
				for i, v := range vs {
					if last := m.last(collection, refs[i].Key); v != nil && last.Deleted && v != last {
						vs[i] = nil
					}
				}
				return vs, err
			}}
		}},
		"order by the clock": {"Time/NowNeverGoesBack", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				m.floor = 0
				return driver.CommitOne(ctx, m, w)
			}}
		}},
		"the present shows in a pinned read": {"Load/BeforeTheVersionsOfOthers", queryWith(func(q *driver.Query) { q.At = driver.Forever })},
		"the first version is lost": {"Write/EverythingThatWasWrittenIsRead", func() *mutant {
			return &mutant{get: func(m *model, ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
				vs, err := m.Get(ctx, collection, refs, nil)
				for i, v := range vs {
					if v != nil && v.Number == 1 && !v.Current() {
						vs[i] = nil
					}
				}
				return vs, err
			}}
		}},
		"the last version stands in for a missing one": {"Random/Operations", func() *mutant {
			return &mutant{get: func(m *model, ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
				vs, err := m.Get(ctx, collection, refs, nil)
				for i, v := range vs {
					if v == nil && refs[i].Number > 0 {
						vs[i] = m.last(collection, refs[i].Key)
					}
				}
				return vs, err
			}}
		}},
		"only the first of the fields": {"Random/Operations", func() *mutant {
			return &mutant{getFields: func(m *model, ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
				vs, err := m.Get(ctx, collection, refs, nil)
				for i, v := range vs {
					if v != nil && len(fields) > 1 {
						some := *v
						some.Data = []byte(`{` + string(fieldOf(v.Data, fields[0])) + `}`)
						vs[i] = &some
					}
				}
				return vs, err
			}}
		}},
		"rows in the order of the database": {"Random/Operations", func() *mutant {
			return &mutant{get: func(m *model, ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
				vs, err := m.Get(ctx, collection, refs, nil)
				slices.SortStableFunc(vs, func(a, b *driver.Version) int {
					if a == nil || b == nil {
						return 0
					}
					return cmp.Compare(a.Key, b.Key)
				})
				return vs, err
			}}
		}},
		"compared first, written later": {"Write/ExactlyOneOfManyWritersWins", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				vs, err := m.Get(ctx, w.Collection, []driver.Ref{{Key: w.Key, At: driver.Forever}}, nil)
				if err != nil || numberOf(vs[0]) != w.Expected {
					return driver.CommitOne(ctx, m, w)
				}
				for range 200 {
					runtime.Gosched() // lets the others compare
				}
				forced := *w
				for {
					v, err := driver.CommitOne(ctx, m, &forced)
					var conflict *driver.ConflictError
					if !errors.As(err, &conflict) {
						return v, err
					}
					forced.Expected = conflict.Lost[0].Actual
				}
			}}
		}},
		"a conflict that says nothing": {"Write/ExactlyOneOfManyWritersWins", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				v, err := driver.CommitOne(ctx, m, w)
				if driver.CodeOf(err) == driver.CodeConflict {
					return nil, driver.Errorf(driver.CodeConflict, "conflict")
				}
				return v, err
			}}
		}},
		"a batch mixes up contents": {"Write/ABatchKeepsDocumentsApart", func() *mutant {
			var mu sync.Mutex
			var last *driver.Write
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				mu.Lock()
				mixed := *w
				if last != nil && last.Key != w.Key {
					mixed.Data = last.Data
				}
				last = w
				mu.Unlock()
				return driver.CommitOne(ctx, m, &mixed)
			}}
		}},
		"numbers begin again after a delete": {"Random/Operations", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				if last := m.last(w.Collection, w.Key); last != nil && last.Deleted {
					delete(m.documents[w.Collection], w.Key)
					again := *w
					again.Expected = 0
					return driver.CommitOne(ctx, m, &again)
				}
				return driver.CommitOne(ctx, m, w)
			}}
		}},
		"a repeated write is a new one": {"Write/RepeatedAtTheSameTime", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				m.byID = make(map[string]*driver.Version)
				return driver.CommitOne(ctx, m, w)
			}}
		}},
		"identifiers are forgotten when closed": {"Random/Operations", func() *mutant {
			return &mutant{open: func(m *model) { m.byID = make(map[string]*driver.Version) }}
		}},
		"the floor is forgotten when closed": {"Time/NowSurvivesReopening", func() *mutant {
			return &mutant{open: func(m *model) { m.floor = 0 }}
		}},
		"now is the clock": {"Time/NowNeverGoesBack", func() *mutant {
			return &mutant{now: func(m *model) driver.Instant { return driver.InstantOf(m.clock()) }}
		}},
		"now promises nothing": {"Time/CommitsFollowNow", func() *mutant {
			return &mutant{now: func(m *model) driver.Instant {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.now()
			}}
		}},
		"now is ahead of commits": {"Time/CommitsFollowNow", func() *mutant {
			return &mutant{now: func(m *model) driver.Instant {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.now() + 2
			}}
		}},
		"writes are committed one by one": {"Write/ABatchIsAllOrNothing", func() *mutant {
			return &mutant{commitAll: func(m *model, ctx context.Context, ws []driver.Write) (made []*driver.Version, _ error) {
				for i := range ws {
					vs, err := m.Commit(ctx, ws[i:i+1])
					if err != nil {
						return nil, err
					}
					made = append(made, vs...)
				}
				return made, nil
			}}
		}},
		"what a batch does not write is not compared": {"Write/ABatchComparesWhatItDoesNotWrite", func() *mutant {
			return &mutant{commitAll: func(m *model, ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
				ws = slices.Clone(ws)
				m.mu.Lock()
				for i, w := range ws {
					if w.Compare {
						ws[i].Expected = numberOf(m.last(w.Collection, w.Key))
					}
				}
				m.mu.Unlock()
				return m.Commit(ctx, ws)
			}}
		}},
		"the writes of a batch have times of their own": {"Write/ABatchHasOneInstant", func() *mutant {
			return &mutant{commitAll: func(m *model, ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
				made, err := m.Commit(ctx, ws)
				m.mu.Lock()
				defer m.mu.Unlock()
				for i, v := range made {
					if i > 0 && v != nil && v.Current() {
						later := *v
						later.RecordedAt += driver.Instant(i)
						made[i] = &later
						m.documents[v.Collection][v.Key][v.Number-1] = &later
						m.floor = max(m.floor, later.RecordedAt)
					}
				}
				return made, err
			}}
		}},
		"a conflict of a batch names the first that lost": {"Write/ABatchIsAllOrNothing", func() *mutant {
			return &mutant{commitAll: func(m *model, ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
				made, err := m.Commit(ctx, ws)
				var conflict *driver.ConflictError
				if errors.As(err, &conflict) {
					conflict.Lost = conflict.Lost[:1]
				}
				return made, err
			}}
		}},
		"a load is made one by one": {"Load/RefusedLoadsAddNothing", func() *mutant {
			return &mutant{load: func(m *model, ctx context.Context, vs []driver.Version) (total driver.LoadResult, _ error) {
				for i := range vs {
					result, err := m.Load(ctx, vs[i:i+1])
					if err != nil {
						return driver.LoadResult{}, &driver.LoadError{Index: i, Err: err}
					}
					total.Added += result.Added
					total.Skipped += result.Skipped
				}
				return total, nil
			}}
		}},
		"a load that is cut off has left out versions": {"Load/APrefixOfEachDocument", func() *mutant {
			cut := false
			return &mutant{load: func(m *model, ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
				if cut {
					return m.Load(ctx, vs)
				}
				cut = true
				if _, err := m.Load(ctx, vs[len(vs)/2:]); err != nil {
					return driver.LoadResult{}, err
				}
				<-ctx.Done()
				return driver.LoadResult{}, driver.GivenUp(ctx.Err())
			}}
		}},
		"a load without an instant": {"Load/HasAnInstant", func() *mutant {
			return &mutant{load: func(m *model, ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
				before := m.loaded
				result, err := m.Load(ctx, vs)
				if before != 0 {
					m.loaded = before
				}
				return result, err
			}}
		}},
		"a load has the time of the clock": {"Load/HasAnInstant", func() *mutant {
			return &mutant{load: func(m *model, ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
				result, err := m.Load(ctx, vs)
				if result.Added > 0 {
					m.loaded = driver.InstantOf(m.clock())
				}
				return result, err
			}}
		}},
		"the instant of a load is forgotten when closed": {"Load/HasAnInstant", func() *mutant {
			return &mutant{open: func(m *model) { m.loaded = 0 }}
		}},
		"a rewritten version is still found by its old values": {"Rewrite/IndexesFollow", func() *mutant {
			old := map[int64]*driver.Version{}
			return &mutant{
				rewrite: func(m *model, ctx context.Context, key string, vs []driver.Version) error {
					for _, v := range vs {
						if list := m.documents[collection][key]; v.Number > 0 && v.Number <= int64(len(list)) {
							old[v.Number] = list[v.Number-1]
						}
					}
					return m.Rewrite(ctx, collection, key, vs)
				},
				query: func(m *model, ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
					found, err := m.Query(ctx, q)
					for _, v := range old {
						if root, decodeErr := decode(v.Data); decodeErr == nil && q.Filter != nil && currentAt(v, q.At) && holds(q.Filter, v, root) {
							found = append(found, v)
						}
					}
					return found, err
				},
			}
		}},
		"a version that is rewritten gets another time": {"Rewrite/NumberAndTimeStay", rewriteWith(func(m *model, key string, v driver.Version) {
			changed := *m.documents[collection][key][v.Number-1]
			changed.RecordedAt++
			m.documents[collection][key][v.Number-1] = &changed
		})},
		"what was rewritten since is overwritten": {"Rewrite/WhatWasRewrittenSinceStays", func() *mutant {
			return &mutant{rewrite: func(m *model, ctx context.Context, key string, vs []driver.Version) error {
				vs = slices.Clone(vs)
				for i := range vs {
					vs[i].Seal = nil
				}
				return m.Rewrite(ctx, collection, key, vs)
			}}
		}},
		"a version that was rewritten comes back with the next commit": {"Rewrite/BesideCommits", func() *mutant {
			var last *driver.Version
			return &mutant{
				rewrite: func(m *model, ctx context.Context, key string, vs []driver.Version) error {
					last = m.documents[collection][key][vs[0].Number-1]
					return m.Rewrite(ctx, collection, key, vs)
				},
				commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
					v, err := driver.CommitOne(ctx, m, w)
					if err == nil && last != nil {
						m.documents[collection][w.Key][last.Number-1] = last
					}
					return v, err
				},
			}
		}},
		"what is pruned comes back with a load": {"Rewrite/APrunedVersionLoadsAsAny", func() *mutant {
			return &mutant{load: func(m *model, ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
				for i := range vs {
					if list := m.documents[collection][vs[i].Key]; len(list) > i && list[i].Op == driver.OpPruned {
						v := vs[i]
						v.SupersededAt = list[i].SupersededAt
						list[i] = &v
					}
				}
				return m.Load(ctx, vs)
			}}
		}},
		"a load takes any seal": {"Load/KeepsSeals", func() *mutant {
			return &mutant{load: func(m *model, ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
				vs = slices.Clone(vs)
				for i := range vs {
					vs[i].Seal = nil
				}
				return m.Load(ctx, vs)
			}}
		}},
		"each version is sealed as the first": {"Load/KeepsSeals", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				v, err := driver.CommitOne(ctx, m, w)
				if v != nil && v.Current() {
					v.Seal = seal.New(nil, v, 0)
				}
				return v, err
			}}
		}},
		"seals are made when they are read": {"Write/EverythingThatWasWrittenIsRead", func() *mutant {
			return &mutant{get: func(m *model, ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
				vs, err := m.Get(ctx, collection, refs, nil)
				for i, v := range vs {
					if v != nil {
						read := *v
						read.Seal = seal.New(nil, v, 0)
						vs[i] = &read
					}
				}
				return vs, err
			}}
		}},
		"from is excluded": {"Log/OrderAndConditions", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]*driver.Version) []*driver.Version) {
				asked := *q
				if asked.From > 0 {
					asked.From++
				}
				return &asked, unchanged
			}}
		}},
		"to is included": {"Log/OrderAndConditions", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]*driver.Version) []*driver.Version) {
				asked := *q
				if asked.To > 0 {
					asked.To++
				}
				return &asked, unchanged
			}}
		}},
		"a limit before the hints": {"Log/OrderAndConditions", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]*driver.Version) []*driver.Version) {
				asked := *q
				asked.Hints = driver.Hints{}
				return &asked, func(versions []*driver.Version) []*driver.Version {
					return slices.DeleteFunc(versions, func(v *driver.Version) bool { return !q.Hints.Hold(v) })
				}
			}}
		}},
		"a log of the first of the fields": {"Random/Operations", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]*driver.Version) []*driver.Version) {
				return q, func(versions []*driver.Version) []*driver.Version {
					for i, v := range versions {
						if some := *v; len(q.Fields) > 1 && v.Data != nil {
							some.Data = []byte(`{` + string(fieldOf(v.Data, q.Fields[0])) + `}`)
							versions[i] = &some
						}
					}
					return versions
				}
			}}
		}},
		"a log ordered by key": {"Log/OrderAndConditions", func() *mutant {
			return &mutant{log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]*driver.Version) []*driver.Version) {
				return q, func(versions []*driver.Version) []*driver.Version {
					slices.SortFunc(versions, func(a, b *driver.Version) int { return cmp.Compare(a.Key, b.Key) })
					return versions
				}
			}}
		}},
		"a position without its key": {"Page/BetweenAfterAndBefore", queryWith(func(q *driver.Query) {
			if q.After != nil {
				q.After = &driver.Position{Values: q.After.Values, Key: "\U0010ffff"}
			}
		})},
		"the first instead of the last": {"Page/BetweenAfterAndBefore", queryWith(func(q *driver.Query) { q.Backward = false })},
		"text in ASCII only": {"Filter/Table", queryWith(func(q *driver.Query) {
			if text, ok := q.Filter.(driver.Text); ok && text.Fold && strings.Contains(text.Value, "É") {
				text.Fold = false
				q.Filter = text
			}
		})},
		"not of a missing value is false": {"Filter/RandomFiltersAgainstTheReference", queryWith(func(q *driver.Query) {
			if not, ok := q.Filter.(driver.Not); ok {
				if c, ok := not.Filter.(driver.Compare); ok {
					q.Filter = driver.And{not, driver.Present{Field: c.Field}}
				}
			}
		})},
		"a value of another kind is there": {"Filter/Table", queryWith(func(q *driver.Query) {
			if p, ok := q.Filter.(driver.Present); ok {
				p.Field.Kind = 0
				q.Filter = p
			}
		})},
		"equal or less is less": {"Filter/RandomFiltersAgainstTheReference", queryWith(func(q *driver.Query) {
			if c, ok := q.Filter.(driver.Compare); ok && c.Op == driver.Le {
				c.Op = driver.Lt
				q.Filter = c
			}
		})},
		"returned data is used again": {"Write/EverythingThatWasWrittenIsRead", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				if last := m.last(w.Collection, w.Key); last != nil && len(last.Data) > 2 {
					last.Data[1] = 'x'
				}
				return driver.CommitOne(ctx, m, w)
			}}
		}},
		"what was acknowledged is lost when closed": {"Lifecycle/ClosingFinishesWhatWasAccepted", func() *mutant {
			return &mutant{open: func(m *model) {
				for key, versions := range m.documents[collection] {
					if len(versions) > 1 {
						m.documents[collection][key] = versions[:len(versions)-1]
					}
				}
			}}
		}},
	}
}

func allMistakes() map[string]mistake {
	all := mistakes()
	maps.Copy(all, registerMistakes())
	return all
}
