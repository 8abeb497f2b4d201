package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) lifecycleTests() []test {
	return []test{
		{"Guarded", s.testGuarded},
		{"ACancelledCommitIsWholeOrNot", s.testCancelledCommit},
		{"ClosingFinishesWhatWasAccepted", s.testClosingUnderLoad},
		{"CollectionsComeAndGo", s.testCollectionsChange},
		{"StatsAndPing", s.testStats},
	}
}

// What package check refuses for all engines, it refuses in front of this one.
func (s *suite) testGuarded(t *testing.T) {
	f := s.fixture(t)
	_, err := f.engine.Get(f.ctx, "unknown", nil, nil)
	f.wantCode("an unknown collection", err, driver.CodeInvalid)
	for range 2 {
		if err := f.engine.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	_, err = f.engine.Now(f.ctx)
	f.wantCode("a call of a closed engine", err, driver.CodeUnavailable)
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
