package clock_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage/clock"
	"github.com/asof/asof/storage/driver"
)

// machine is a machine's clocks, moved by hand.
type machine struct {
	day    time.Time
	passed time.Duration
	log    strings.Builder
}

// pass lets time pass.
func (m *machine) pass(d time.Duration) { m.day, m.passed = m.day.Add(d), m.passed+d }

// set sets the time of day forth or back.
func (m *machine) set(d time.Duration) { m.day = m.day.Add(d) }

func (m *machine) instant() driver.Instant { return driver.InstantOf(m.day) }

func newClock() (*machine, *clock.Clock) {
	m := &machine{day: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), passed: time.Hour}
	return m, clock.New(clock.Options{
		Now: func() time.Time { return m.day }, Elapsed: func() time.Duration { return m.passed },
		Logger: slog.New(slog.NewTextHandler(io.Writer(&m.log), nil)),
	})
}

func commit(c *clock.Clock) driver.Instant {
	c.Begin()
	defer c.End()
	return c.Next()
}

const year = 365 * 24 * time.Hour

// Whatever looks at the clock while it is a year ahead, nothing that it hands
// out is, then or afterwards.
func TestAJumpForthAndBack(t *testing.T) {
	for name, look := range map[string]func(c *clock.Clock) driver.Instant{
		"Now":     func(c *clock.Clock) driver.Instant { return c.Now() },
		"commit":  commit,
		"Present": func(c *clock.Clock) driver.Instant { return c.Present() },
		"Settle": func(c *clock.Clock) driver.Instant {
			if err := c.Settle(context.Background(), driver.InstantOf(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))); driver.CodeOf(err) != driver.CodeInvalid {
				t.Errorf("Settle of an instant in the future: %v", err)
			}
			return c.Now()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newClock()
			m.pass(time.Minute)
			right := m.instant()
			m.set(year)
			if at := look(c); at != right {
				t.Errorf("while the clock was ahead: %s, want %s", at, right)
			}
			m.pass(200 * time.Millisecond)
			m.set(-year)
			if at := commit(c); at != m.instant() {
				t.Errorf("afterwards a commit at %s, want %s", at, m.instant())
			}
			if at := c.Now(); at != m.instant() {
				t.Errorf("afterwards Now is %s, want %s", at, m.instant())
			}
			if said := m.log.String(); strings.Count(said, "level=ERROR") != 1 || strings.Count(said, "level=INFO") != 1 {
				t.Errorf("it logged\n%s", said)
			}
		})
	}
}

// A clock that was set forth for good is not followed, however long that is; one
// that went a little wrong, or was suspended, is.
func TestWhatIsFollowed(t *testing.T) {
	m, c := newClock()
	m.set(clock.Bound)
	if at := c.Now(); at != m.instant() {
		t.Errorf("set forth by the bound: %s, want %s", at, m.instant())
	}
	m.pass(8 * time.Hour) // asleep
	if at := c.Now(); at != m.instant() {
		t.Errorf("after a night: %s, want %s", at, m.instant())
	}
	m.set(time.Microsecond)
	expected := m.day.Add(-clock.Bound - time.Microsecond)
	for range 10 {
		m.pass(time.Hour)
		expected = expected.Add(time.Hour)
		if at := c.Now(); at != driver.InstantOf(expected) {
			t.Errorf("set forth by more: %s, want %s", at, expected)
		}
	}
}

// After a clock was set back, commits follow each other by a microsecond until it
// has caught up.
func TestASetBackClock(t *testing.T) {
	m, c := newClock()
	last := commit(c)
	m.set(-time.Hour)
	for range 3 {
		if at := commit(c); at != last+1 {
			t.Errorf("a commit at %s, want %s", at, last+1)
		}
		last++
	}
	m.pass(2 * time.Hour)
	if at := commit(c); at != m.instant() {
		t.Errorf("a commit at %s, want %s", at, m.instant())
	}
}

// Every instant that a reader is given is covered before, and no more than the
// bound beyond it.
func TestCover(t *testing.T) {
	m := &machine{day: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var covered driver.Instant
	calls := 0
	c := clock.New(clock.Options{
		Now: func() time.Time { return m.day }, Elapsed: func() time.Duration { return m.passed },
		Cover:  func(until driver.Instant) { covered, calls = until, calls+1 },
		Logger: slog.New(slog.DiscardHandler),
	})
	for range 100 {
		m.pass(10 * time.Millisecond)
		if at := c.Now(); at > covered || covered > at+driver.Instant(clock.Bound/time.Microsecond) {
			t.Fatalf("Now is %s, covered until %s", at, covered)
		}
	}
	if calls > 3 {
		t.Errorf("%d calls in a second", calls)
	}
	c.Stop()
	m.pass(time.Hour)
	if at := c.Now(); at > covered {
		t.Errorf("stopped, Now is %s, covered until %s", at, covered)
	}
}
