package drivertest

import (
	"fmt"
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
