package mongostore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A load whose turn cannot come, since nothing can be written, does not wait for it.
func TestWaitingLoadIsRefused(t *testing.T) {
	full := mongo.CommandError{Code: 14031, Name: "OutOfDiskSpace", Message: "available disk space"}
	causes := []struct {
		name   string
		refuse func(*clock)
		text   string
	}{
		{"the clock is refused", func(c *clock) { c.noteFailure(full, true) }, "the disk of the server is full"},
		{"the database was emptied", func(c *clock) { c.emptied = true }, "was emptied"},
	}
	for _, busy := range []struct {
		name string
		busy func(*clock)
	}{
		{"a load is under way", func(c *clock) { c.mode, c.loading = alone, true }},
		{"others do not know yet that a load has ended", func(c *clock) { c.mode, c.claimed = shared, true }},
		{"a commit has not got its time yet", func(c *clock) { c.mode, c.held = alone, 1 }},
		{"a load of a dead server is to be completed", func(c *clock) { c.mode, c.debts = alone, 1 }},
		{"a commit is in flight", func(c *clock) { c.mode, c.flights = alone, []driver.Instant{1} }},
		{"others have not been told of the load", func(c *clock) { c.mode = shared }},
		{"the server comes in", func(c *clock) { c.mode = joining }},
	} {
		for _, cause := range causes {
			t.Run(busy.name+", and "+cause.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), hangs)
				defer cancel()
				c := newClock(time.Now, func() time.Duration { return 0 }, 1)
				f := newFleet(nil, c, beatEvery)
				busy.busy(c)
				cause.refuse(c)
				loading := c.loading
				_, err := f.exclude(ctx)
				if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), cause.text) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v (%q)", err, driver.CodeOf(err))
				}
				if c.loading != loading {
					t.Error("it holds off commits afterwards")
				}
			})
		}
	}
}

// A load on a server that shares a database is refused when what it says of itself is,
// and when the database is dropped, as a commit is.
func TestLoadIsRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		fail func(ctx context.Context, proxy *mongotest.Proxy, s *Store) error
		text string
	}{
		{"a full disk", func(_ context.Context, proxy *mongotest.Proxy, _ *Store) error {
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if c.Name == "findAndModify" {
					return mongotest.Reply(mongotest.Failure(14031, "OutOfDiskSpace", "available disk space"))
				}
				return mongotest.Pass()
			})
			return nil
		}, "the disk of the server is full"},
		{"a database that was dropped", func(ctx context.Context, _ *mongotest.Proxy, s *Store) error { return s.db.Drop(ctx) }, "was emptied"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, behind, _ := pair(ctx, t, Options{})
			t.Cleanup(func() { proxy.Set(nil) })
			if err := test.fail(ctx, proxy, behind); err != nil {
				t.Fatal(err)
			}
			until(ctx, t, behind, func(c *clock) bool { return c.refusal() != nil })
			_, err := behind.Load(ctx, two(0, "things"))
			if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), test.text) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v (%q)", err, driver.CodeOf(err))
			}
		})
	}
}
