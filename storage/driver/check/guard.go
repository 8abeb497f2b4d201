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

// CloseTimeout is how long Close of a guarded engine waits for calls that run.
const CloseTimeout = 20 * time.Second

// Guard puts in front of an engine what all engines refuse alike: calls after Close,
// contexts that have ended, collections other than the given ones, and malformed
// arguments. The engine behind it gets none of these. Its Close is called once, when no
// other call runs any more, or after CloseTimeout.
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

func (g *guard) Now(ctx context.Context) (driver.Instant, error) {
	if err := g.enter(ctx); err != nil {
		return 0, err
	}
	defer g.leave()
	return g.engine.Now(ctx)
}

func (g *guard) Settle(ctx context.Context, at driver.Instant) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	return g.engine.Settle(ctx, at)
}

func (g *guard) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if err := g.enter(ctx); err != nil {
		return nil, err
	}
	defer g.leave()
	if err := g.collection(collection); err != nil {
		return nil, err
	}
	return g.engine.Get(ctx, collection, refs, fields)
}

func (g *guard) query(q *driver.Query) error {
	if err := g.collection(q.Collection); err != nil {
		return err
	}
	return query(q)
}

func (g *guard) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	if err := g.enter(ctx); err != nil {
		return nil, err
	}
	defer g.leave()
	if err := g.query(q); err != nil {
		return nil, err
	}
	return g.engine.Query(ctx, q)
}

func (g *guard) Count(ctx context.Context, q *driver.Query) (int64, error) {
	if err := g.enter(ctx); err != nil {
		return 0, err
	}
	defer g.leave()
	if err := g.query(q); err != nil {
		return 0, err
	}
	return g.engine.Count(ctx, q)
}

func (g *guard) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		err := g.enter(ctx)
		if err == nil {
			defer g.leave()
			err = g.log(q)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		g.engine.Log(ctx, q)(yield)
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
	if err := g.enter(ctx); err != nil {
		return nil, err
	}
	defer g.leave()
	for i := range ws {
		if err := g.collection(ws[i].Collection); err != nil {
			return nil, err
		}
		if err := write(&ws[i]); err != nil {
			return nil, err
		}
	}
	if len(ws) != 1 || ws[0].Compare {
		if err := together(ws, g.writes); err != nil {
			return nil, err
		}
	}
	return g.engine.Commit(ctx, ws)
}

func (g *guard) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	if err := g.enter(ctx); err != nil {
		return driver.LoadResult{}, err
	}
	defer g.leave()
	if i, err := g.loaded(vs); err != nil {
		return driver.LoadResult{}, &driver.LoadError{Index: i, Err: err}
	}
	return g.engine.Load(ctx, vs)
}

// loaded returns why versions are refused, and which is the first.
func (g *guard) loaded(vs []driver.Version) (int, error) {
	for i := range vs {
		if err := g.collection(vs[i].Collection); err != nil {
			return i, err
		}
		if err := loaded(&vs[i]); err != nil {
			return i, err
		}
	}
	return 0, nil
}

func (g *guard) Rewrite(ctx context.Context, collection, key string, vs []driver.Version) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	if err := g.collection(collection); err != nil {
		return err
	}
	if err := rewritten(collection, key, vs); err != nil || len(vs) == 0 {
		return err
	}
	return g.engine.Rewrite(ctx, collection, key, vs)
}

func (g *guard) Loaded(ctx context.Context) (driver.Instant, error) {
	if err := g.enter(ctx); err != nil {
		return 0, err
	}
	defer g.leave()
	return g.engine.Loaded(ctx)
}

func (g *guard) Stats(ctx context.Context) (driver.Stats, error) {
	if err := g.enter(ctx); err != nil {
		return driver.Stats{}, err
	}
	defer g.leave()
	return g.engine.Stats(ctx)
}

func (g *guard) Ping(ctx context.Context) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	return g.engine.Ping(ctx)
}

func (g *guard) Check(ctx context.Context, report func(problem string)) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	return g.engine.Check(ctx, report)
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
		timer := time.NewTimer(CloseTimeout)
		defer timer.Stop()
		select {
		case <-g.idle:
		case <-timer.C:
		}
	}
	return g.engine.Close()
}
