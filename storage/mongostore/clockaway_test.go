package mongostore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// Nobody waits for a database that has been out of reach for longer than an election
// takes: what is asked then is refused at once, for that reason and not because the
// time was up, until it is back. A load waits all the same.
func TestDatabaseIsAway(t *testing.T) {
	t.Parallel()
	const beat = 100 * time.Millisecond
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
		s := newFleetServer(t, uri, Options{beat: beat})
		if _, err := commitAgain(ctx, s, write("a", "1", 0)); err != nil {
			t.Fatal(err)
		}
		impatient(s, slowBeats*beat)
		proxy.Set(func(mongotest.Command) mongotest.Answer { return mongotest.CutBefore() })
		until(ctx, t, s, func(c *clock) bool { return c.away() != nil })
		for name, call := range map[string]func() error{
			"Now":    func() error { _, err := s.Now(ctx); return err },
			"Commit": func() error { _, err := s.Commit(ctx, write("a", "2", 1)); return err },
		} {
			err := call()
			if driver.CodeOf(err) != driver.CodeUnavailable || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("shared %t, %s: %v", shares, name, err)
			}
		}
		waits, giveUp := context.WithTimeout(ctx, 5*beat)
		defer giveUp()
		if _, err := s.Load(waits, two(0, "things")[:1]); err == nil || waits.Err() == nil {
			t.Errorf("shared %t: a load did not wait: %v", shares, err)
		}
		if ctx.Err() != nil {
			t.Fatal("a call was not refused")
		}
		proxy.Set(nil)
		if _, err := commitAgain(ctx, s, write("a", "3", 1)); err != nil {
			t.Errorf("shared %t: after the outage: %v", shares, err)
		}
	}
}
