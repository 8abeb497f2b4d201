package drivertest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) lifecycleTests() []test {
	return []test{
		{"Guarded", s.testGuarded},
		{"ClosingFinishesWhatWasAccepted", s.testClosingUnderLoad},
		{"CollectionsComeAndGo", s.testCollectionsChange},
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
		stats, err := f.engine.Stats(f.ctx)
		if err != nil || stats.Bytes <= 0 || len(stats.Collections) != 2 || stats.Documents != 2 {
			t.Errorf("%s: %+v, %v; want some bytes of two documents in two collections", when, stats, err)
		}
		if err := f.engine.Ping(f.ctx); err != nil {
			t.Errorf("%s: Ping: %v", when, err)
		}
		f.put("a", `{"n":3}`)
		f.reopen(append(declared(), driver.Collection{Name: "added"})...)
	}
	if got := f.count(&driver.Query{Collection: "added", At: driver.Forever}); got != 0 {
		t.Errorf("the added collection has %d documents", got)
	}
}
