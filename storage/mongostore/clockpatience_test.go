package mongostore

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// Patience grows by commands that were not answered in time, where there was no
// lease to lose, and ends with the first that is answered quickly.
func TestPatience(t *testing.T) {
	const least, most = time.Second, 5 * time.Second
	slow := mongo.CommandError{Code: 50, Message: "the time was up"}
	for _, test := range []struct {
		name   string
		leased bool
		took   time.Duration
		err    error
		now    time.Duration // before
		want   time.Duration
	}{
		{"answered", false, least / 2, nil, 0, 0},
		{"answered again", false, least / 2, nil, 4 * least, 0},
		{"answered late", false, 2 * least, nil, 4 * least, 4 * least},
		{"not answered", false, least, slow, 0, 2 * least},
		{"not answered again", false, 2 * least, slow, 2 * least, 4 * least},
		{"never answered", false, 4 * least, slow, 4 * least, most},
		{"not answered, while a lease lasted", true, least, slow, 0, 0},
		{"not sent", false, least, mongo.ErrClientDisconnected, 0, 0},
		{"refused", false, least, mongo.CommandError{Code: 13}, 0, 0},
	} {
		elapsed := time.Duration(0)
		p := &patience{least: least, most: most, now: test.now, elapsed: func() time.Duration { return elapsed }, leased: func() bool { return test.leased }}
		var given time.Time
		err := p.try(t.Context(), func(ctx context.Context) error {
			given, _ = ctx.Deadline()
			elapsed += test.took
			return test.err
		})
		if (err == nil) != (test.err == nil) || given.IsZero() || p.now != test.want {
			t.Errorf("%s: %v, until %v, and then %v; want %v", test.name, err, given, p.now, test.want)
		}
	}
}

// slowly lets each exchange of the clock arrive after some time.
func slowly(ctx context.Context, delay time.Duration) func(mongotest.Command) mongotest.Answer {
	return func(c mongotest.Command) mongotest.Answer {
		if c.Name == "findAndModify" && c.Collection() == metaName {
			pause(ctx, delay)
		}
		return mongotest.Pass()
	}
}

// A database that changes the clock document in a bit less than a lease, but each
// time in more than an exchange gets at first, is slow, and no more.
func TestSlowExchanges(t *testing.T) {
	t.Parallel()
	const beat = 200 * time.Millisecond
	for _, shares := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		defer cancel()
		proxy, uri, name := mongotest.NewServer(t).Behind(t)
		if shares {
			direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
			if err != nil {
				t.Fatal(err)
			}
			newFleetServer(t, direct, Options{beat: beat})
		}
		proxy.Set(slowly(ctx, patienceBeats*beat+beat/8))
		behind := newFleetServer(t, uri, Options{beat: beat})
		v, err := commitAgain(ctx, behind, write("a", "1", 0))
		if err != nil {
			t.Fatalf("shared %t: %v", shares, err)
		}
		if now, err := behind.Now(ctx); err != nil || now < v.RecordedAt {
			t.Errorf("shared %t: Now is %d (%v), after a commit at %d", shares, now, err, v.RecordedAt)
		}
		proxy.Set(nil)
	}
}

// Where exchanges take longer than a lease, so that nothing can be written, callers
// are told why, whether they have a deadline or not, and everything goes on when
// the database is quicker.
func TestTooSlowExchanges(t *testing.T) {
	t.Parallel()
	const beat = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newFleetServer(t, uri, Options{beat: beat})
	impatient(s, slowBeats*beat)
	proxy.Set(slowly(ctx, 2*leaseBeats*beat))
	until(ctx, t, s, func(c *clock) bool { return c.tooSlow(c.term) != nil })
	vs := two(0, "things")
	for name, call := range map[string]func() error{
		"Now":     func() error { _, err := s.Now(ctx); return err },
		"Commit":  func() error { _, err := s.Commit(ctx, write("a", "1", 0)); return err },
		"Load":    func() error { _, err := s.Load(ctx, vs[:1]); return err },
		"Ping":    func() error { return s.Ping(ctx) },
		"sending": func() error { _, err := s.clock.exclusionLeft(lifeOf(s)); return err },
	} {
		err := call()
		if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "server is too slow") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("a call was not refused")
	}
	proxy.Set(nil)
	until(ctx, t, s, func(c *clock) bool { return c.slow == 0 })
	impatient(s, hangs)
	if _, err := commitAgain(ctx, s, write("a", "1", 0)); err != nil {
		t.Errorf("when it is quick again: %v", err)
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("when it is quick again: %v", err)
	}
}

// A database that was too slow once is not told to be: this process may have stood
// still. One that goes on to be is, until it is quick again.
func TestStoodStill(t *testing.T) {
	const beat = time.Second
	elapsed := time.Duration(0)
	c := newClock(time.Now, func() time.Duration { return elapsed }, 1)
	newFleet(nil, c, beat)
	for i, step := range []struct {
		took time.Duration
		told bool
	}{{beat, false}, {time.Hour, false}, {beat, false}, {time.Hour, false}, {leaseBeats * beat, true}, {leaseBeats * beat, true}, {beat, false}} {
		elapsed += step.took
		c.noteSlow(step.took, true)
		c.mu.Lock()
		err := c.tooSlow(c.term)
		c.mu.Unlock()
		if (err != nil) != step.told {
			t.Errorf("exchange %d, of %v: %v", i, step.took, err)
		}
	}
}
