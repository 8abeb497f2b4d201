package drivertest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) timeTests() []test {
	return []test{
		{"NowNeverGoesBack", s.testNowNeverGoesBack},
		{"NowSurvivesReopening", s.testNowSurvives},
		{"NowCoversTheCallersOwnWrites", s.testReadYourWrites},
		{"NothingAppearsBeforeNow", s.testNothingAppears},
		{"Settle", s.testSettle},
		{"CommitsFollowNow", s.testCommitsFollowNow},
		{"ReadsAtDifferentInstantsAreApart", s.testInstantsApart},
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

func (s *suite) testReadYourWrites(t *testing.T) {
	f := s.fixture(t)
	parallel(8, func(i int) {
		key := fmt.Sprintf("k%d", i)
		for n := range int64(12) {
			v, err := driver.CommitOne(f.ctx, f.engine, &driver.Write{
				ID: f.id(), Collection: collection, Key: key, Expected: n, Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"n":%d}`, n),
			})
			if err != nil {
				t.Error(err)
				return
			}
			now, err := f.engine.Now(f.ctx)
			if err != nil || now < v.RecordedAt {
				t.Errorf("Now is %d (%v) after a commit at %d", now, err, v.RecordedAt)
			}
			got, err := f.engine.Get(f.ctx, collection, []driver.Ref{{Key: key, At: now}}, nil)
			if err != nil || numberOf(got[0]) != v.Number {
				t.Errorf("%s: Get after the commit of version %d: %+v, %v", key, v.Number, got, err)
			}
			byKey := eq(driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, key)
			found, err := f.engine.Query(f.ctx, &driver.Query{Collection: collection, At: now, Filter: byKey})
			if err != nil || len(found) != 1 || found[0].Number != v.Number {
				t.Errorf("%s: Query after the commit of version %d: %v, %v", key, v.Number, found, err)
			}
		}
	})
}

// Readers take an instant from Now and write down all that they see there,
// while others write and the clock jumps. Read again later, it is the same.
func (s *suite) testNothingAppears(t *testing.T) {
	const keys, writers, readers = 8, 4, 3
	commits := int64(150 * s.scale)
	f := s.fixture(t)
	type observation struct {
		at   driver.Instant
		seen string
	}
	see := func(at driver.Instant) (string, error) {
		vs, err := f.engine.Query(f.ctx, &driver.Query{Collection: collection, At: at})
		if err != nil {
			return "", err
		}
		n, err := f.engine.Count(f.ctx, &driver.Query{Collection: collection, At: at})
		var seen strings.Builder
		_, _ = fmt.Fprintf(&seen, "%d:", n)
		for _, v := range vs {
			_, _ = fmt.Fprintf(&seen, " %s@%d=%s", v.Key, v.Number, v.Data)
		}
		return seen.String(), err
	}
	var made, running atomic.Int64
	running.Store(writers)
	var mu sync.Mutex
	var observations []observation
	parallel(writers+readers, func(i int) {
		if i < writers {
			defer running.Add(-1)
			var last [keys]int64
			for n := 0; made.Add(1) <= commits; n++ {
				k := n % keys
				w := &driver.Write{
					ID: f.id(), Collection: collection, Key: fmt.Sprintf("k%d.%d", i%2, k), Expected: last[k],
					Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"n":%d}`, n),
				}
				if n%7 == 6 {
					w.Op, w.Deleted, w.Data = driver.OpDelete, true, nil
				}
				v, err := driver.CommitOne(f.ctx, f.engine, w)
				var conflict *driver.ConflictError
				if errors.As(err, &conflict) {
					last[k] = conflict.Lost[0].Actual
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				last[k] = v.Number
				f.clock.move([]time.Duration{time.Microsecond, 0, 3 * time.Microsecond, -time.Microsecond}[n%4])
			}
			return
		}
		for running.Load() > 0 {
			at, err := f.engine.Now(f.ctx)
			if err == nil && i%2 == 0 {
				err = f.engine.Settle(f.ctx, at)
			}
			var seen string
			if err == nil {
				seen, err = see(at)
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			observations = append(observations, observation{at, seen})
			mu.Unlock()
		}
	})
	// Many readings of a state that did not change say nothing new.
	step := max(1, len(observations)/400)
	for i := 0; i < len(observations); i += step {
		o := observations[i]
		seen, err := see(o.at)
		if err != nil {
			t.Fatal(err)
		}
		if seen != o.seen {
			t.Errorf("at %d there was\n%s\nand later, at the same instant,\n%s", o.at, o.seen, seen)
		}
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

// Reads at different instants, made at the same time, do not mix.
func (s *suite) testInstantsApart(t *testing.T) {
	f := s.fixture(t)
	var at []driver.Instant
	for n := range int64(8) {
		at = append(at, f.put("a", fmt.Sprintf(`{"n":%d}`, n)).RecordedAt)
		f.clock.move(time.Second)
	}
	parallel(len(at), func(i int) {
		for range 30 {
			vs, err := f.engine.Get(f.ctx, collection, []driver.Ref{{Key: "a", At: at[i]}}, nil)
			if err != nil || numberOf(vs[0]) != int64(i)+1 {
				t.Errorf("Get at version %d: %+v, %v", i+1, vs, err)
				return
			}
			vs, err = f.engine.Query(f.ctx, &driver.Query{Collection: collection, At: at[i], Filter: eq(intField("n"), int64(i))})
			if err != nil || len(vs) != 1 || vs[0].Number != int64(i)+1 {
				t.Errorf("Query at version %d: %+v, %v", i+1, vs, err)
				return
			}
		}
	})
}
