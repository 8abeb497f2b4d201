package check

import (
	"context"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"github.com/asof/asof/storage/driver"
)

// closeTimeout is how long Close of a guarded engine waits for calls that run.
const closeTimeout = 20 * time.Second

// Guard puts in front of an engine what all engines refuse alike: calls after Close,
// contexts that have ended, collections other than the given ones, and what no version could
// hold. The engine behind it gets none of these. Its Close is called once, when no other call runs any more, or after
// closeTimeout.
func Guard(engine driver.Engine, collections []string) driver.Engine {
	return &guard{engine: engine, known: collections, idle: make(chan struct{}, 1)}
}

type guard struct {
	engine driver.Engine
	known  []string      // few, so that looking through them is the quickest
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

func (g *guard) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	return call(ctx, g, g.collection(q.Collection), func() ([]*driver.Version, error) { return g.engine.Query(ctx, q) })
}

func (g *guard) Count(ctx context.Context, q *driver.Query) (int64, error) {
	return call(ctx, g, g.collection(q.Collection), func() (int64, error) { return g.engine.Count(ctx, q) })
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
	return nil
}

func (g *guard) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	return call(ctx, g, g.commit(ws), func() ([]*driver.Version, error) { return g.engine.Commit(ctx, ws) })
}

func (g *guard) commit(ws []driver.Write) error {
	for i := range ws {
		w := &ws[i]
		err := g.collection(w.Collection)
		if err == nil && !w.Compare {
			err = content(w.Collection, w.Key, w.Op, w.Deleted, w.Data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	return call(ctx, g, g.loaded(vs), func() (driver.LoadResult, error) { return g.engine.Load(ctx, vs) })
}

// loaded returns why versions are refused.
func (g *guard) loaded(vs []driver.Version) error {
	for i := range vs {
		v := &vs[i]
		err := g.collection(v.Collection)
		if err == nil && v.RecordedAt <= 0 {
			err = invalidf("%s %q: the time %s is not after 1970-01-01", v.Collection, v.Key, v.RecordedAt)
		}
		if err == nil {
			err = content(v.Collection, v.Key, v.Op, v.Deleted, v.Data)
		}
		if err != nil {
			return &driver.LoadError{Index: i, Err: err}
		}
	}
	return nil
}

func (g *guard) Rewrite(ctx context.Context, collection, key string, vs []driver.Version) error {
	err := g.collection(collection)
	for i := 0; err == nil && i < len(vs); i++ {
		err = content(collection, key, vs[i].Op, vs[i].Deleted, vs[i].Data)
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

func invalidf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

// content refuses what no version could hold.
func content(collection, key string, op driver.Op, deleted bool, data []byte) error {
	switch {
	case key == "":
		return invalidf("a version of %s has no key", collection)
	case !utf8.ValidString(key):
		return invalidf("%s: the key %q is not valid UTF-8", collection, key)
	case op < driver.OpCreate || op > driver.OpErase:
		return invalidf("%s %q: unknown operation %d", collection, key, op)
	case op == driver.OpPruned && !deleted:
		return invalidf("%s %q: a pruned version has no data", collection, key)
	case deleted && data != nil:
		return invalidf("%s %q: a tombstone has no data", collection, key)
	case !deleted && (len(data) < 2 || data[0] != '{' || !gjson.ValidBytes(data)):
		return invalidf("%s %q: the data is not a JSON object", collection, key)
	case !utf8.Valid(data):
		return invalidf("%s %q: the data is not valid UTF-8", collection, key)
	}
	return nil
}

// Stored says what is wrong with a version that a store holds: what no version could hold, or
// what no line of an export could.
func Stored(v *driver.Version) error {
	if err := content(v.Collection, v.Key, v.Op, v.Deleted, v.Data); err != nil {
		return err
	}
	for what, text := range map[string]string{"author": v.Author, "message": v.Message, "change group": v.Group} {
		if !utf8.ValidString(text) {
			return invalidf("%s %q: the %s is not valid UTF-8", v.Collection, v.Key, what)
		}
	}
	if !v.Deleted && !jsontext.Value(v.Data).IsValid() { // it is stricter about members and escapes
		return invalidf("%s %q: the data is not a JSON object", v.Collection, v.Key)
	}
	return nil
}
