package drivertest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
)

// registers is the test that has to notice what is wrong under load only.
const registers = "Linear/EachDocumentIsARegister"

// now and then makes every nth call true.
func nowAndThen(n int64) func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%n == 0 }
}

func lostAnswer() error { return driver.Errorf(driver.CodeUnavailable, "no answer came") }

// registerMistakes are those that show only in the answers of many calls.
func registerMistakes() map[string]mistake {
	return map[string]mistake{
		"an update is lost": {registers, func() *mutant {
			sometimes := nowAndThen(20)
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				v, err := driver.CommitOne(ctx, m, w)
				if err != nil || !sometimes() {
					return v, err
				}
				// The next write on the same version takes this one's place.
				m.mu.Lock()
				defer m.mu.Unlock()
				if versions := m.documents[w.Collection][w.Key]; len(versions) > 1 && versions[len(versions)-1].Number == v.Number {
					before := *versions[len(versions)-2]
					before.SupersededAt = driver.Forever
					versions[len(versions)-2] = &before
					m.documents[w.Collection][w.Key] = versions[:len(versions)-1]
					delete(m.byID, w.ID)
				}
				return v, nil
			}}
		}},
		"a read is stale": {registers, func() *mutant {
			sometimes := nowAndThen(10)
			return &mutant{get: func(m *model, ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
				vs, err := m.Get(ctx, collection, refs, nil)
				for i, v := range vs {
					if v != nil && v.Number > 1 && refs[i].At == driver.Forever && sometimes() {
						m.mu.Lock()
						vs[i] = m.documents[collection][v.Key][v.Number-2]
						m.mu.Unlock()
					}
				}
				return vs, err
			}}
		}},
		"a query is stale": {registers, func() *mutant {
			sometimes := nowAndThen(10)
			return &mutant{query: func(m *model, ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
				changed := *q
				if sometimes() {
					changed.At = q.At - 100
				}
				return m.Query(ctx, &changed)
			}}
		}},
		"now misses what was acknowledged": {registers, func() *mutant {
			return &mutant{now: func(m *model) driver.Instant {
				m.mu.Lock()
				defer m.mu.Unlock()
				return max(1, m.floor-50)
			}}
		}},
		"a write without an answer is done again": {registers, func() *mutant {
			sometimes := nowAndThen(10)
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				v, err := driver.CommitOne(ctx, m, w)
				if err != nil || !sometimes() {
					return v, err
				}
				m.mu.Lock()
				delete(m.byID, w.ID)
				m.mu.Unlock()
				again := *w
				again.Expected = v.Number
				return driver.CommitOne(ctx, m, &again)
			}}
		}},
		"what was acknowledged was never there": {registers, func() *mutant {
			sometimes := nowAndThen(20)
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				m.mu.Lock()
				last := m.last(w.Collection, w.Key)
				m.mu.Unlock()
				if numberOf(last) != w.Expected || !sometimes() {
					return driver.CommitOne(ctx, m, w)
				}
				return &driver.Version{
					Collection: w.Collection, Key: w.Key, Number: w.Expected + 1, RecordedAt: driver.InstantOf(m.clock()),
					SupersededAt: driver.Forever, Op: w.Op, Deleted: w.Deleted, Author: w.Author, Data: w.Data,
				}, nil
			}}
		}},
		"a write conflicts with itself": {registers + "WhenCallersGiveUp", func() *mutant {
			sometimes := nowAndThen(4)
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				m.mu.Lock()
				delete(m.byID, w.ID)
				m.mu.Unlock()
				v, err := driver.CommitOne(context.WithoutCancel(ctx), m, w)
				if err == nil && sometimes() {
					return driver.CommitOne(ctx, m, w)
				}
				return v, err
			}}
		}},
		"a write that nobody waits for is undone": {registers + "WhenCallersGiveUp", func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				v, err := driver.CommitOne(context.WithoutCancel(ctx), m, w)
				for range 20 {
					runtime.Gosched() // lets the caller give up, and others read
				}
				if err != nil || ctx.Err() == nil {
					return v, err
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				if versions := m.documents[w.Collection][w.Key]; versions[len(versions)-1] == v {
					m.documents[w.Collection][w.Key] = versions[:len(versions)-1]
				}
				delete(m.byID, w.ID)
				return nil, lostAnswer()
			}}
		}},
		"a conflict names a version that is not there yet": {registers, func() *mutant {
			return &mutant{commit: func(m *model, ctx context.Context, w *driver.Write) (*driver.Version, error) {
				v, err := driver.CommitOne(ctx, m, w)
				var conflict *driver.ConflictError
				if errors.As(err, &conflict) {
					conflict.Lost[0].Actual++
				}
				return v, err
			}}
		}},
	}
}
