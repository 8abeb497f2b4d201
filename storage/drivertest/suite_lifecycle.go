package drivertest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) timeTests() []test {
	return []test{
		{"NowNeverGoesBack", s.testNowNeverGoesBack},
		{"NowSurvivesReopening", s.testNowSurvives},
		{"Settle", s.testSettle},
		{"CommitsFollowNow", s.testCommitsFollowNow},
	}
}

func (s *suite) testNowNeverGoesBack(t *testing.T) {
	f := s.fixture(t)
	last := f.now()
	for _, d := range []time.Duration{time.Second, 0, -time.Hour, time.Minute, time.Nanosecond, 2 * time.Hour, -1} {
		f.clock.move(d)
		now := f.now()
		if now < last {
			t.Errorf("after the clock moved by %s, Now is %s, was %s", d, now, last)
		}
		last = now
	}
	if v := f.put("a", `{}`); v.RecordedAt <= last || f.now() < v.RecordedAt {
		t.Errorf("a commit at %s, with Now at %s before and %s after", v.RecordedAt, last, f.now())
	}
}

func (s *suite) testNowSurvives(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	f.clock.move(time.Hour)
	pinned := f.now()
	f.clock.move(-48 * time.Hour)
	f.reopen()
	if now := f.now(); now < pinned {
		t.Errorf("opened again, Now is %s, was %s", now, pinned)
	}
	f.reopen()
	if v := f.put("a", `{"n":2}`); v.RecordedAt <= pinned {
		t.Errorf("opened again, a commit at %s, but Now was %s", v.RecordedAt, pinned)
	}
	last := f.get(driver.Ref{Key: "a", At: driver.Forever}).RecordedAt
	f.reopen()
	if v := f.put("a", `{"n":3}`); v.RecordedAt <= last {
		t.Errorf("opened again, version 3 at %s, version 2 at %s", v.RecordedAt, last)
	}
}

func (s *suite) testSettle(t *testing.T) {
	f := s.fixture(t)
	v := f.put("a", `{"n":1}`)
	now := f.now()
	for _, at := range []driver.Instant{0, 1, v.RecordedAt - 1, v.RecordedAt, now} {
		if err := f.engine.Settle(f.ctx, at); err != nil {
			t.Errorf("Settle(%d), with Now at %d: %v", at, now, err)
		}
	}
	for _, at := range []driver.Instant{now + 3_600_000_000, driver.Forever} {
		f.wantCode(fmt.Sprintf("Settle(%d), with Now at %d", at, now), f.engine.Settle(f.ctx, at), driver.CodeInvalid)
	}
	// An instant that only the clock has reached, no call of Now.
	at := f.clock.move(time.Hour)
	if err := f.engine.Settle(f.ctx, at); err != nil {
		t.Errorf("Settle of what the clock says: %v", err)
	}
	if v := f.put("a", `{"n":2}`); v.RecordedAt <= at {
		t.Errorf("a commit at %d, although %d was settled", v.RecordedAt, at)
	}
}

func (s *suite) testCommitsFollowNow(t *testing.T) {
	f := s.fixture(t)
	for i := range 50 {
		now := f.now()
		if v := f.put(fmt.Sprintf("k%d", i%3), fmt.Sprintf(`{"n":%d}`, i)); v.RecordedAt <= now {
			t.Fatalf("a commit at %d, but Now was %d", v.RecordedAt, now)
		}
		switch i % 3 {
		case 1:
			f.clock.move(time.Microsecond)
		case 2:
			f.clock.move(-time.Millisecond)
		}
	}
	// A clock that moved on is followed.
	at := f.clock.move(time.Hour)
	if v := f.put("k0", `{}`); v.RecordedAt < at {
		t.Errorf("a commit at %s, but the clock says %s", v.RecordedAt, at)
	}
}

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
