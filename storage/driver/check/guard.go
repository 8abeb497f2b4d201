package check

import (
	"context"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asof/asof/storage/driver"
)

// closeTimeout is how long Close of a guarded engine waits for calls that run.
const closeTimeout = 20 * time.Second

// Guard puts in front of an engine what all engines refuse alike: calls after Close,
// contexts that have ended, collections other than the given ones, and malformed
// arguments. The engine behind it gets none of these. Its Close is called once, when no
// other call runs any more, or after closeTimeout.
func Guard(engine driver.Engine, collections []string) driver.Engine {
	g := &guard{engine: engine, known: collections, writes: driver.MaxWrites, idle: make(chan struct{}, 1)}
	if b, ok := driver.As[driver.Batcher](engine); ok {
		g.writes = b.MaxWrites()
	}
	return g
}

type guard struct {
	engine driver.Engine
	known  []string      // few, so that looking through them is the quickest
	writes int           // that one commit may have
	calls  atomic.Int64  // that run, plus closing after Close
	idle   chan struct{} // gets a value when the last call has ended after Close
}

// closing makes any number of calls negative.
const closing = math.MinInt64 / 2

// Unwrap returns the engine behind the guard, see driver.As.
func (g *guard) Unwrap() driver.Engine { return g.engine }

// enter lets a call in, which then has to leave.
func (g *guard) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return driver.GivenUp(err)
	}
	if g.calls.Add(1) < 0 {
		g.leave()
		return driver.Closed()
	}
	return nil
}

func (g *guard) leave() {
	if g.calls.Add(-1) == closing {
		select {
		case g.idle <- struct{}{}:
		default:
		}
	}
}

func (g *guard) collection(name string) error {
	if !slices.Contains(g.known, name) {
		return invalidf("unknown collection %q", name)
	}
	return nil
}

// call calls an engine, unless its arguments are refused.
func call[T any](ctx context.Context, g *guard, refused error, of func() (T, error)) (T, error) {
	var none T
	if err := g.enter(ctx); err != nil {
		return none, err
	}
	defer g.leave()
	if refused != nil {
		return none, refused
	}
	return of()
}

// do is call of what returns nothing.
func (g *guard) do(ctx context.Context, refused error, of func() error) error {
	_, err := call(ctx, g, refused, func() (struct{}, error) { return struct{}{}, of() })
	return err
}

func (g *guard) Now(ctx context.Context) (driver.Instant, error) {
	return call(ctx, g, nil, func() (driver.Instant, error) { return g.engine.Now(ctx) })
}

func (g *guard) Settle(ctx context.Context, at driver.Instant) error {
	return g.do(ctx, nil, func() error { return g.engine.Settle(ctx, at) })
}

func (g *guard) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	return call(ctx, g, g.collection(collection), func() ([]*driver.Version, error) { return g.engine.Get(ctx, collection, refs, fields) })
}

func (g *guard) query(q *driver.Query) error {
	if err := g.collection(q.Collection); err != nil {
		return err
	}
	return query(q)
}

func (g *guard) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	return call(ctx, g, g.query(q), func() ([]*driver.Version, error) { return g.engine.Query(ctx, q) })
}

func (g *guard) Count(ctx context.Context, q *driver.Query) (int64, error) {
	return call(ctx, g, g.query(q), func() (int64, error) { return g.engine.Count(ctx, q) })
}

func (g *guard) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		if err := g.do(ctx, g.log(q), func() error { g.engine.Log(ctx, q)(yield); return nil }); err != nil {
			yield(nil, err)
		}
	}
}

func (g *guard) log(q *driver.LogQuery) error {
	for _, name := range q.Collections {
		if err := g.collection(name); err != nil {
			return err
		}
	}
	return log(q)
}

func (g *guard) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	return call(ctx, g, g.commit(ws), func() ([]*driver.Version, error) { return g.engine.Commit(ctx, ws) })
}

func (g *guard) commit(ws []driver.Write) error {
	for i := range ws {
		if err := g.collection(ws[i].Collection); err != nil {
			return err
		}
		if err := write(&ws[i]); err != nil {
			return err
		}
	}
	if len(ws) != 1 || ws[0].Compare {
		return together(ws, g.writes)
	}
	return nil
}

func (g *guard) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	return call(ctx, g, g.loaded(vs), func() (driver.LoadResult, error) { return g.engine.Load(ctx, vs) })
}

// loaded returns why versions are refused.
func (g *guard) loaded(vs []driver.Version) error {
	for i := range vs {
		err := g.collection(vs[i].Collection)
		if err == nil {
			err = loaded(&vs[i])
		}
		if err != nil {
			return &driver.LoadError{Index: i, Err: err}
		}
	}
	return nil
}

func (g *guard) Rewrite(ctx context.Context, collection, key string, vs []driver.Version) error {
	err := g.collection(collection)
	if err == nil {
		err = rewritten(collection, key, vs)
	}
	return g.do(ctx, err, func() error {
		if len(vs) == 0 {
			return nil
		}
		return g.engine.Rewrite(ctx, collection, key, vs)
	})
}

func (g *guard) Loaded(ctx context.Context) (driver.Instant, error) {
	return call(ctx, g, nil, func() (driver.Instant, error) { return g.engine.Loaded(ctx) })
}

func (g *guard) Stats(ctx context.Context) (driver.Stats, error) {
	return call(ctx, g, nil, func() (driver.Stats, error) { return g.engine.Stats(ctx) })
}

func (g *guard) Ping(ctx context.Context) error {
	return g.do(ctx, nil, func() error { return g.engine.Ping(ctx) })
}

func (g *guard) Check(ctx context.Context, report func(problem string)) error {
	return g.do(ctx, nil, func() error { return g.engine.Check(ctx, report) })
}

func (g *guard) Close() error {
	running := g.calls.Load()
	for running >= 0 && !g.calls.CompareAndSwap(running, running+closing) {
		running = g.calls.Load()
	}
	switch {
	case running < 0:
		return nil
	case running > 0:
		timer := time.NewTimer(closeTimeout)
		defer timer.Stop()
		select {
		case <-g.idle:
		case <-timer.C:
		}
	}
	return g.engine.Close()
}
