package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) lifecycleTests() []test {
	return []test{
		{"CancelledContexts", s.testCancelled},
		{"ACancelledCommitIsWholeOrNot", s.testCancelledCommit},
		{"Closed", s.testClosed},
		{"ClosingFinishesWhatWasAccepted", s.testClosingUnderLoad},
		{"CollectionsComeAndGo", s.testCollectionsChange},
		{"StatsAndPing", s.testStats},
	}
}

// call is one way to use each method.
type call struct {
	name string
	call func(ctx context.Context) error
}

func (f *fixture) calls() []call {
	return []call{
		{"Now", func(ctx context.Context) error { _, err := f.engine.Now(ctx); return err }},
		{"Settle", func(ctx context.Context) error { return f.engine.Settle(ctx, 1) }},
		{"Get", func(ctx context.Context) error {
			_, err := f.engine.Get(ctx, collection, []driver.Ref{{Key: "a", At: 1}, {Key: "a", Number: 1}}, nil)
			return err
		}},
		{"Query", func(ctx context.Context) error {
			_, err := f.engine.Query(ctx, &driver.Query{Collection: collection, At: driver.Forever, Filter: eq(intField("n"), int64(1))})
			return err
		}},
		{"Query of the past", func(ctx context.Context) error {
			_, err := f.engine.Query(ctx, &driver.Query{Collection: collection, At: 1})
			return err
		}},
		{"Count", func(ctx context.Context) error {
			_, err := f.engine.Count(ctx, &driver.Query{Collection: collection, At: driver.Forever})
			return err
		}},
		{"Log", func(ctx context.Context) error {
			var last error
			for _, err := range f.engine.Log(ctx, &driver.LogQuery{}) {
				last = err
			}
			return last
		}},
		{"Commit", func(ctx context.Context) error {
			_, err := driver.CommitOne(ctx, f.engine, &driver.Write{
				ID: f.id(), Collection: collection, Key: f.id(), Op: driver.OpCreate, Data: []byte(`{}`),
			})
			return err
		}},
		{"Load", func(ctx context.Context) error {
			_, err := f.engine.Load(ctx, []driver.Version{loaded(f.id(), 1, `{}`)})
			return err
		}},
		{"Loaded", func(ctx context.Context) error { _, err := f.engine.Loaded(ctx); return err }},
		{"Stats", func(ctx context.Context) error { _, err := f.engine.Stats(ctx); return err }},
		{"Ping", func(ctx context.Context) error { return f.engine.Ping(ctx) }},
		{"Check", func(ctx context.Context) error { return f.engine.Check(ctx, func(string) {}) }},
	}
}

func (s *suite) testCancelled(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	cancelled, cancel := context.WithCancel(f.ctx)
	cancel()
	expired, cancel := context.WithDeadline(f.ctx, time.Unix(1, 0))
	defer cancel()
	for _, c := range f.calls() {
		if err := c.call(f.ctx); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		f.wantCode(c.name+", cancelled", c.call(cancelled), driver.CodeUnavailable)
		f.wantCode(c.name+", too late", c.call(expired), driver.CodeUnavailable)
		if err := c.call(f.ctx); err != nil {
			t.Errorf("%s, after a cancelled call: %v", c.name, err)
		}
	}
}

// A commit whose context ends on the way may be made or not, but it is made
// whole, and trying it again with the same ID tells.
func (s *suite) testCancelledCommit(t *testing.T) {
	f := s.fixture(t)
	const writers = 40
	parallel(writers, func(i int) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		w := &driver.Write{
			ID: fmt.Sprintf("w%d", i), Collection: collection, Key: fmt.Sprintf("k%d", i), Op: driver.OpCreate,
			Data: fmt.Appendf(nil, `{"n":%d}`, i),
		}
		go cancel()
		if _, err := driver.CommitOne(ctx, f.engine, w); err != nil {
			f.wantCode("a cancelled commit", err, driver.CodeUnavailable)
		}
		v, err := driver.CommitOne(f.ctx, f.engine, w)
		if err != nil || v.Number != 1 || string(v.Data) != string(w.Data) {
			t.Errorf("writer %d, again: %+v, %v", i, v, err)
		}
	})
	if got := len(f.log(&driver.LogQuery{})); got != writers {
		t.Errorf("%d versions, want %d", got, writers)
	}
}

func (s *suite) testClosed(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	log := f.engine.Log(f.ctx, &driver.LogQuery{})
	if err := f.engine.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for _, c := range f.calls() {
		f.wantCode(c.name+" of a closed engine", c.call(f.ctx), driver.CodeUnavailable)
	}
	for _, err := range log {
		f.wantCode("a Log from before", err, driver.CodeUnavailable)
	}
	if err := f.engine.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	f.reopen()
	if got := f.get(driver.Ref{Key: "a", Number: 1}); got == nil {
		t.Error("opened again, nothing is there")
	}
}

// Each commit that was acknowledged while the engine closed is there; each
// that was refused is not.
func (s *suite) testClosingUnderLoad(t *testing.T) {
	f := s.fixture(t)
	const writers = 8
	acknowledged := make([]int64, writers)
	var total atomic.Int64
	enough := make(chan struct{})
	parallel(writers+1, func(i int) {
		if i == writers {
			<-enough
			if err := f.engine.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return
		}
		for n := int64(0); ; n++ {
			_, err := driver.CommitOne(f.ctx, f.engine, &driver.Write{
				ID: f.id(), Collection: collection, Key: fmt.Sprintf("k%d", i), Expected: n, Op: driver.OpUpdate, Data: []byte(`{}`),
			})
			if total.Add(1) == 10*writers {
				close(enough)
			}
			if err != nil {
				f.wantCode("a commit while closing", err, driver.CodeUnavailable)
				return
			}
			acknowledged[i] = n + 1
		}
	})
	f.reopen()
	for i, want := range acknowledged {
		if got := numberOf(f.get(driver.Ref{Key: fmt.Sprintf("k%d", i), At: driver.Forever})); got != want {
			t.Errorf("writer %d: version %d, %d were acknowledged", i, got, want)
		}
	}
}

// A collection that is no longer declared is still there.
func (s *suite) testCollectionsChange(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	v := f.commit(&driver.Write{ID: f.id(), Collection: "others", Key: "a", Op: driver.OpCreate, Data: []byte(`{"n":2}`)})
	f.reopen(declared()[0])
	for _, when := range []string{"not declared", "declared again"} {
		vs, err := f.engine.Get(f.ctx, "others", []driver.Ref{{Key: "a", Number: 1}}, nil)
		if err != nil || !same(vs[0], v) {
			t.Errorf("%s: %+v, %v; want %+v", when, vs, err, v)
		}
		if got := fmt.Sprint(names(f.log(&driver.LogQuery{FromNumber: 1, ToNumber: 2}))); got != "[t/a@1 o/a@1]" {
			t.Errorf("%s: the log is %s", when, got)
		}
		f.put("a", `{"n":3}`)
		f.reopen(append(declared(), driver.Collection{Name: "added"})...)
	}
	if got := f.count(&driver.Query{Collection: "added", At: driver.Forever}); got != 0 {
		t.Errorf("the added collection has %d documents", got)
	}
}

func (s *suite) testStats(t *testing.T) {
	f := s.fixture(t)
	want := driver.Stats{}
	for i := range 12 {
		key := fmt.Sprintf("k%d", i%5)
		if i == 9 {
			f.remove(key)
			want.Documents--
		} else {
			f.put(key, fmt.Sprintf(`{"n":%d}`, i))
		}
		if i < 5 {
			want.Documents++
		}
		want.Versions++
		got, err := f.engine.Stats(f.ctx)
		if err != nil || got.Bytes <= 0 || got.Documents != want.Documents || got.Versions != want.Versions {
			t.Errorf("after %d writes: %+v, %v; want %+v and some bytes", i+1, got, err, want)
		}
	}
	f.commit(&driver.Write{ID: f.id(), Collection: "others", Key: "a", Op: driver.OpCreate, Data: []byte(`{}`)})
	name := declared()[0].Name
	collections := []driver.CollectionStats{{Name: "others", Documents: 1, Versions: 1}, {Name: name, Documents: want.Documents, Versions: want.Versions}}
	slices.SortFunc(collections, func(a, b driver.CollectionStats) int { return strings.Compare(a.Name, b.Name) })
	for _, when := range []string{"declared", "not declared any more"} {
		got, err := f.engine.Stats(f.ctx)
		if diff := cmp.Diff(collections, got.Collections); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", when, err, diff)
		}
		f.reopen(declared()[0])
	}
	if err := f.engine.Ping(f.ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
	err := f.engine.Check(f.ctx, func(problem string) { t.Errorf("Check: %s", problem) })
	if err != nil {
		t.Errorf("Check: %v", err)
	}
}
