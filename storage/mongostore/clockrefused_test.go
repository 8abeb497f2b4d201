package mongostore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A database that refuses what a server says of itself can be written no more, and
// by a server that is alone not be read as of now. Everybody is told why: at once,
// where that stays so until somebody does something, else when the time is up; and so
// is who asks whether the server is ready. It goes on when the database does.
func TestExchangesAreRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer mongotest.Answer
		atOnce bool
		text   string
	}{
		{"a full disk", mongotest.Reply(mongotest.Failure(14031, "OutOfDiskSpace", "available disk space")), true, "the disk of the server is full"},
		{"a right that was taken away", mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not authorized")), true, "needs the role readWrite"},
		{"writes that are blocked", mongotest.Reply(mongotest.Failure(371, "UserWritesBlocked", "blocked")), true, "writes to the cluster are blocked"},
		{"something new", mongotest.Reply(mongotest.Failure(99999, "SomethingNew", "as yet unknown")), true, "as yet unknown"},
		{"no primary", mongotest.Reply(mongotest.Failure(10107, "NotWritablePrimary", "not primary", "RetryableWriteError", "NoWritesPerformed")), false, "not primary"},
		{"a connection that breaks", mongotest.CutBefore(), false, "cannot be reached"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newServerOf(t, uri, Options{})
			t.Cleanup(func() { proxy.Set(nil) })
			if _, err := commitAgain(ctx, s, write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if slices.Contains([]string{"insert", "update", "delete", "findAndModify"}, c.Name) {
					return test.answer
				}
				return mongotest.Pass()
			})
			until(ctx, t, s, func(c *clock) bool { return c.failed != nil && !c.leased() })
			calls := []struct {
				name string
				call func(context.Context) error
			}{
				{"Now", func(ctx context.Context) error { _, err := s.Now(ctx); return err }},
				{"Commit", func(ctx context.Context) error { _, err := driver.CommitOne(ctx, s, write("a", "2", 1)); return err }},
				{"Ping", s.Ping},
			}
			for _, call := range calls {
				ctx, cancel := ctx, context.CancelFunc(func() {})
				if !test.atOnce {
					ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				}
				err := call.call(ctx)
				cancel()
				if driver.CodeOf(err) != codeOf(test.text) || call.name != "Commit" && !strings.Contains(err.Error(), test.text) {
					t.Errorf("%s: %v (%q), want %q", call.name, err, driver.CodeOf(err), test.text)
				}
				if call.name == "Commit" && test.atOnce && codeOf(test.text) == driver.CodeUnavailable && driver.RefusalOf(err) == "" {
					t.Errorf("who writes is not told that nothing was written: %v", err)
				}
			}
			proxy.Set(nil)
			for _, call := range calls {
				for {
					err := call.call(ctx)
					if err == nil {
						break
					}
					if ctx.Err() != nil {
						t.Fatalf("%s, when the database is well again: %v", call.name, err)
					}
				}
			}
			if h, err := s.collections["things"].readHead(ctx, "a"); err != nil || h.Number != 2 {
				t.Errorf("%v, %v", h, err)
			}
		})
	}
}

// codeOf is the code of an error that says something.
func codeOf(text string) driver.Code {
	if text == "as yet unknown" {
		return driver.CodeInternal
	}
	return driver.CodeUnavailable
}

// A server that cannot come in among the others says at once why.
func TestComingInIsRefused(t *testing.T) {
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "findAndModify" {
			return mongotest.Reply(bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: int32(13)}, {Key: "codeName", Value: "Unauthorized"}, {Key: "errmsg", Value: "not authorized"}})
		}
		return mongotest.Pass()
	})
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	s, err := openURI(ctx, uri, Options{Timeout: hangs})
	if err == nil {
		_ = s.Close()
	}
	if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "needs the role readWrite") {
		t.Errorf("%v (%q)", err, driver.CodeOf(err))
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it waited until the time was up: %v", err)
	}
}

// Who waits for the clock of a database that answers with an error at once does not
// make the server ask again and again without a pause.
func TestFailedExchangesPause(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		answer mongotest.Answer
	}{
		{"the time limit was exceeded", mongotest.Reply(mongotest.Failure(262, "ExceededTimeLimit", "no", "RetryableWriteError"))},
		{"not yet initialized", mongotest.Reply(mongotest.Failure(94, "NotYetInitialized", "no"))},
		{"too slow", mongotest.Reply(mongotest.Failure(50, "MaxTimeMSExpired", "operation exceeded time limit"))},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newServerOf(t, uri, Options{timing: quick})
			t.Cleanup(func() { proxy.Set(nil) })
			if _, err := commitAgain(ctx, s, write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			var exchanges atomic.Int64
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if c.Name == "findAndModify" {
					exchanges.Add(1)
					return test.answer
				}
				return mongotest.Pass()
			})
			until(ctx, t, s, func(c *clock) bool { return c.failed != nil && !c.leased() })
			for _, call := range []struct {
				name string
				call func(context.Context) error
			}{
				{"Now", func(ctx context.Context) error { _, err := s.Now(ctx); return err }},
				{"Commit", func(ctx context.Context) error { _, err := driver.CommitOne(ctx, s, write("a", "2", 1)); return err }},
			} {
				const most = 1000 // tens are what is due, and tens of thousands without a pause
				waiting, end := context.WithTimeout(ctx, 2*time.Second)
				before := exchanges.Load()
				err := call.call(waiting)
				end()
				if n := exchanges.Load() - before; err == nil || n > most {
					t.Errorf("%s, which ended with %v: %d commands about the clock in two seconds", call.name, err, n)
				}
			}
		})
	}
}

// Servers that share a database are told at once, too; and so is who loads.
func TestSharingServersAreRefused(t *testing.T) {
	t.Parallel()
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
			for name, call := range map[string]func() error{
				"Settle": func() error { return behind.Settle(ctx, presentOf(behind)) },
				"Commit": func() error { _, err := driver.CommitOne(ctx, behind, write("a", "1", 0)); return err },
				"Load":   func() error { _, err := behind.Load(ctx, loaded(2, 1)); return err },
			} {
				err := call()
				if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), test.text) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v (%q)", name, err, driver.CodeOf(err))
				}
			}
		})
	}
}

// presentOf is the latest instant that is not in the future for a server.
func presentOf(s *Store) driver.Instant {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.present()
}
