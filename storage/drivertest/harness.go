package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// Harness is how the suite reaches an engine.
type Harness struct {
	// New makes a place for the data of one test and returns the function that
	// opens it.
	New func(t *testing.T) Opener
	// Parallel says that tests run beside each other, as is quicker where an engine
	// waits for another process most of the time. Those that measure, those that are
	// many callers themselves and those of documents of many megabytes still run alone.
	Parallel bool
	// Groups are those of the tests that are run; none: all.
	Groups []string
}

// Opener opens the data of one test: empty at first and, after the engine was
// closed, again with what it held, perhaps with other declared indexes. It
// fails the test when it cannot.
type Opener func(t *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine

// Run runs the whole suite against an engine, each rule as a subtest.
//
// Two environment variables change what the random tests do:
// ASOF_DRIVERTEST_SCALE multiplies how much they try (default 1), and
// ASOF_DRIVERTEST_SEED sets the seed, or lets time choose it ("random").
func Run(t *testing.T, h Harness) {
	s := &suite{Harness: h, scale: 1, seed: 1}
	if v := os.Getenv("ASOF_DRIVERTEST_SCALE"); v != "" {
		scale, err := strconv.Atoi(v)
		if err != nil || scale < 1 {
			t.Fatalf("ASOF_DRIVERTEST_SCALE=%q: want a whole number from 1", v)
		}
		s.scale = scale
	}
	switch v := os.Getenv("ASOF_DRIVERTEST_SEED"); v {
	case "":
	case "random":
		s.seed = rand.Uint64()
	default:
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("ASOF_DRIVERTEST_SEED=%q: want a whole number, or random", v)
		}
		s.seed = seed
	}
	for _, group := range []struct {
		name  string
		tests []test
		alone bool
	}{
		{"Filter", s.filterTests(), false},
		{"Page", s.pageTests(), false},
		{"Write", append(s.writeTests(), s.batchTests()...), false},
		{"Time", s.timeTests(), false},
		{"Log", s.logTests(), false},
		{"Load", s.loadTests(), false},
		{"Rewrite", s.rewriteTests(), false},
		{"Lifecycle", s.lifecycleTests(), false},
		{"Hostile", s.hostileTests(), true},
		{"Growth", s.growthTests(), true},
		{"Linear", s.linearTests(), true},
		{"Random", s.randomTests(), false},
	} {
		if len(h.Groups) > 0 && !slices.Contains(h.Groups, group.name) {
			continue
		}
		beside := h.Parallel && !group.alone
		t.Run(group.name, func(t *testing.T) {
			if beside {
				t.Parallel()
			}
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					if beside {
						t.Parallel()
					}
					test.run(t)
				})
			}
		})
	}
}

type suite struct {
	Harness
	scale int
	seed  uint64
}

// tries is how often a random test of one goroutine tries.
func (s *suite) tries(n int) int {
	if raced {
		return max(1, n/10)
	}
	return n
}

// rounds is how often a random test of one goroutine starts anew.
func (s *suite) rounds(n int) uint64 {
	if raced {
		return 1
	}
	return uint64(n * s.scale)
}

type test struct {
	name string
	run  func(t *testing.T)
}

// testTimeout ends a test whose engine hangs; no test comes near it.
const testTimeout = 15 * time.Minute

// fixture is one test's engine with shorthands that fail the test.
type fixture struct {
	*testing.T
	ctx    context.Context
	engine driver.Engine // with its contract checked
	raw    driver.Engine
	clock  *clock
	open   Opener
	ids    atomic.Int64
}

// collection is the one that most tests use.
const collection = "things"

// declared is a plain declaration: two indexes of scalars and one of a list.
func declared() []driver.Collection {
	return []driver.Collection{
		{Name: collection, Indexes: []driver.Index{
			{Path: []string{"n"}, Kind: driver.KindInt},
			{Path: []string{"s"}, Kind: driver.KindString},
			{Path: []string{"tags"}, Kind: driver.KindString, List: true},
		}},
		{Name: "others"},
	}
}

func (s *suite) fixture(t *testing.T, collections ...driver.Collection) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	if len(collections) == 0 {
		collections = declared()
	}
	f := &fixture{T: t, ctx: ctx, clock: newClock(), open: s.New(t)}
	f.start(collections)
	t.Cleanup(func() {
		if t.Failed() {
			_ = f.engine.Close()
			return
		}
		// The test's own context has ended by now.
		err := f.engine.Check(context.WithoutCancel(ctx), func(problem string) { t.Errorf("Check: %s", problem) })
		if err != nil && driver.CodeOf(err) != driver.CodeUnavailable {
			t.Errorf("Check: %v", err)
		}
		f.checkSeals(context.WithoutCancel(ctx))
		if err := f.engine.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return f
}

// checkSeals looks whether all versions that the engine holds follow on each other.
func (f *fixture) checkSeals(ctx context.Context) {
	type document struct{ collection, key string }
	last := make(map[document][]byte)
	for v, err := range f.raw.Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			if driver.CodeOf(err) != driver.CodeUnavailable {
				f.Errorf("Log: %v", err)
			}
			return
		}
		d := document{v.Collection, v.Key}
		if err := seal.Verify(last[d], v); err != nil {
			f.Errorf("%s %q: version %d %v", v.Collection, v.Key, v.Number, err)
		}
		last[d] = v.Seal
	}
}

func (f *fixture) start(collections []driver.Collection) {
	f.Helper()
	f.raw = f.open(f.T, collections, f.clock.now)
	f.engine = Contract(f.raw, func(violation string) { f.Errorf("contract: %s", violation) })
}

// reopen closes the engine and opens its data again.
func (f *fixture) reopen(collections ...driver.Collection) {
	f.Helper()
	if err := f.engine.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
	if len(collections) == 0 {
		collections = declared()
	}
	f.start(collections)
}

func (f *fixture) id() string { return fmt.Sprintf("write-%d", f.ids.Add(1)) }

// put writes a document's next version, whatever is current.
func (f *fixture) put(key, data string) *driver.Version {
	f.Helper()
	w := f.next(key)
	w.Data = []byte(data)
	return f.commit(w)
}

// remove writes a tombstone.
func (f *fixture) remove(key string) *driver.Version {
	f.Helper()
	w := f.next(key)
	w.Op, w.Deleted = driver.OpDelete, true
	return f.commit(w)
}

// next is a write that will succeed, still without data.
func (f *fixture) next(key string) *driver.Write {
	f.Helper()
	w := &driver.Write{ID: f.id(), Collection: collection, Key: key, Op: driver.OpCreate, Author: "ann"}
	if last := f.get(driver.Ref{Key: key, At: driver.Forever}); last != nil {
		w.Expected, w.Op = last.Number, driver.OpUpdate
	}
	return w
}

func (f *fixture) commit(w *driver.Write) *driver.Version {
	f.Helper()
	v, err := driver.CommitOne(f.ctx, f.engine, w)
	if err != nil {
		f.Fatalf("Commit(%s %q, expecting %d): %v", w.Collection, w.Key, w.Expected, err)
	}
	return v
}

func (f *fixture) get(ref driver.Ref) *driver.Version {
	f.Helper()
	vs, err := f.engine.Get(f.ctx, collection, []driver.Ref{ref}, nil)
	if err != nil {
		f.Fatalf("Get(%+v): %v", ref, err)
	}
	return vs[0]
}

func (f *fixture) now() driver.Instant {
	f.Helper()
	now, err := f.engine.Now(f.ctx)
	if err != nil {
		f.Fatalf("Now: %v", err)
	}
	return now
}

func (f *fixture) query(q *driver.Query) []*driver.Version {
	f.Helper()
	if q.Collection == "" {
		q.Collection = collection
	}
	vs, err := f.engine.Query(f.ctx, q)
	if err != nil {
		f.Fatalf("Query(%#v): %v", *q, err)
	}
	return vs
}

// keys is what a query finds.
func (f *fixture) keys(q *driver.Query) []string {
	f.Helper()
	return keysOf(f.query(q))
}

func (f *fixture) count(q *driver.Query) int64 {
	f.Helper()
	if q.Collection == "" {
		q.Collection = collection
	}
	n, err := f.engine.Count(f.ctx, q)
	if err != nil {
		f.Fatalf("Count(%#v): %v", *q, err)
	}
	return n
}

// log is what a query selects: it checks the hints, and where the engine has not,
// goes on until there are as many versions as the limit says.
func (f *fixture) log(q *driver.LogQuery) []*driver.Version {
	f.Helper()
	var versions []*driver.Version
	for asked := *q; ; {
		var last *driver.Version
		n := 0
		for v, err := range f.engine.Log(f.ctx, &asked) {
			if err != nil {
				f.Fatalf("Log(%+v): %v", *q, err)
			}
			n, last = n+1, v
			if q.Hints.Hold(v) {
				versions = append(versions, v)
			}
		}
		if q.Limit == 0 || n < asked.Limit || len(versions) == q.Limit {
			return versions
		}
		p := last.Position()
		asked.After, asked.Limit = &p, q.Limit-len(versions)
	}
}

func (f *fixture) load(vs ...driver.Version) driver.LoadResult {
	f.Helper()
	result, _, err := f.loadAgain(f.ctx, vs)
	if err != nil {
		f.Fatalf("Load: %v", err)
	}
	return result
}

// loadAgain loads, and does so again as long as the engine cannot now, as a database in
// another process that stands still for a moment: whether what is loaded is there then
// nobody knows. Where it was loaded again, what was added may count as skipped.
func (f *fixture) loadAgain(ctx context.Context, vs []driver.Version) (result driver.LoadResult, again bool, err error) {
	for {
		if result, err = f.engine.Load(ctx, vs); driver.CodeOf(err) != driver.CodeUnavailable || ctx.Err() != nil {
			return result, again, err
		}
		again = true
	}
}

// wantCode fails the test unless an error has exactly this code.
func (f *fixture) wantCode(what string, err error, want driver.Code) {
	f.Helper()
	if got := driver.CodeOf(err); got != want {
		f.Errorf("%s: got %v (code %q), want code %q", what, err, got, want)
	}
}

// clock is a clock that moves only when move is called. Safe for concurrent use.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

// newClock starts where a second is not whole, so that cut digits show.
func newClock() *clock {
	return &clock{t: time.Date(2024, 3, 1, 12, 0, 0, 123456789, time.UTC)}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// move changes the clock, forwards or back, and returns its new instant.
func (c *clock) move(d time.Duration) driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
	return driver.InstantOf(c.t)
}

// Elapsed measures what passes by a clock that is moved by hand, as an engine
// that compares the two expects it.
func Elapsed(now func() time.Time) func() time.Duration {
	return func() time.Duration { return time.Duration(now().UnixNano()) }
}

// Shorthands for fields, conditions and orders.

func field(kind driver.Kind, path ...string) driver.Field {
	return driver.Field{Path: path, Kind: kind}
}

func eq(f driver.Field, value driver.Value) driver.Filter {
	return driver.Compare{Field: f, Op: driver.Eq, Value: value}
}

func intField(path ...string) driver.Field    { return field(driver.KindInt, path...) }
func stringField(path ...string) driver.Field { return field(driver.KindString, path...) }
