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

// maxWriteID is the length of the longest ID of a write, in bytes.
const maxWriteID = 36

// write refuses a malformed write, see driver.Engine.Commit. The collection
// must be known.
func write(w *driver.Write) error {
	switch {
	case w.ID == "" || len(w.ID) > maxWriteID:
		return invalidf("a write needs an ID of 1 to %d bytes, got %d", maxWriteID, len(w.ID))
	case w.Expected < 0:
		return invalidf("%s %q: the expected version is %d; version numbers start at 1, and 0 means that it must not exist", w.Collection, w.Key, w.Expected)
	}
	if w.Compare {
		return key(w.Collection, w.Key)
	}
	if w.Op == driver.OpPruned {
		return invalidf("%s %q: a write cannot make a pruned version", w.Collection, w.Key)
	}
	return content(w.Collection, w.Key, w.Op, w.Deleted, w.Data)
}

// together refuses writes that cannot be committed at once, of which each is well-formed.
func together(ws []driver.Write, most int) error {
	switch {
	case !slices.ContainsFunc(ws, func(w driver.Write) bool { return !w.Compare }):
		return invalidf("a commit makes no version")
	case len(ws) > most:
		return invalidf("a commit has %d writes; this store takes at most %d at once", len(ws), most)
	}
	type document struct{ collection, key string }
	documents, ids := make(map[document]bool, len(ws)), make(map[string]bool, len(ws))
	bytes := 0
	for i := range ws {
		w := &ws[i]
		d := document{w.Collection, w.Key}
		switch {
		case documents[d]:
			return invalidf("a commit has two writes of %s %q; make one of them", w.Collection, w.Key)
		case ids[w.ID]:
			return invalidf("a commit has two writes with the ID %q", w.ID)
		}
		documents[d], ids[w.ID] = true, true
		bytes += len(w.Data)
	}
	if bytes > driver.MaxCommitBytes {
		return invalidf("the writes of a commit have %d bytes of data; at most %d are possible at once", bytes, driver.MaxCommitBytes)
	}
	return nil
}

// loaded refuses a malformed version, see driver.Engine.Load. The collection
// must be known.
func loaded(v *driver.Version) error {
	switch {
	case v.RecordedAt <= 0:
		return invalidf("%s %q: the time %s is not after 1970-01-01", v.Collection, v.Key, v.RecordedAt)
	case v.Number < 0:
		return invalidf("%s %q: version numbers start at 1, got %d", v.Collection, v.Key, v.Number)
	}
	return content(v.Collection, v.Key, v.Op, v.Deleted, v.Data)
}

// rewritten refuses malformed versions, see driver.Engine.Rewrite. The collection must be
// known.
func rewritten(collection, k string, vs []driver.Version) error {
	numbers := make(map[int64]bool, len(vs))
	for i := range vs {
		v := &vs[i]
		switch {
		case v.Number < 1:
			return invalidf("%s %q: version numbers start at 1, got %d", collection, k, v.Number)
		case numbers[v.Number]:
			return invalidf("%s %q: version %d is rewritten twice at once", collection, k, v.Number)
		}
		numbers[v.Number] = true
		if err := content(collection, k, v.Op, v.Deleted, v.Data); err != nil {
			return err
		}
	}
	return key(collection, k)
}

func key(collection, key string) error {
	switch {
	case key == "":
		return invalidf("a version of %s has no key", collection)
	case !utf8.ValidString(key):
		return invalidf("%s: the key %q is not valid UTF-8", collection, key)
	}
	return nil
}

// content refuses what no version could hold.
func content(collection, k string, op driver.Op, deleted bool, data []byte) error {
	if err := key(collection, k); err != nil {
		return err
	}
	switch {
	case op < driver.OpCreate || op > driver.OpErase:
		return invalidf("%s %q: unknown operation %d", collection, k, op)
	case op == driver.OpPruned && !deleted:
		return invalidf("%s %q: a pruned version has no data", collection, k)
	case deleted && data != nil:
		return invalidf("%s %q: a tombstone has no data", collection, k)
	case !deleted && (len(data) < 2 || data[0] != '{' || !gjson.ValidBytes(data)):
		return invalidf("%s %q: the data is not a JSON object", collection, k)
	case !utf8.Valid(data):
		return invalidf("%s %q: the data is not valid UTF-8", collection, k)
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
