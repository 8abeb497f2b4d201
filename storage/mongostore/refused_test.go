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

// Of a write of which nothing is there clients are told so, and why, as far as it
// is theirs to know; of one that may be there they are not.
func TestCommitRefused(t *testing.T) {
	onUpdate := func(answer mongotest.Answer) func(*Store, *mongotest.Proxy) {
		return func(_ *Store, proxy *mongotest.Proxy) {
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("update")(c) {
					return answer
				}
				return mongotest.Pass()
			})
		}
	}
	for _, test := range []struct {
		name    string
		timeout time.Duration
		spoil   func(*Store, *mongotest.Proxy)
		code    driver.Code
		want    string
	}{
		{"no rights", time.Minute, onUpdate(mongotest.Reply(mongotest.Failure(13, "Unauthorized", "secret"))), driver.CodeUnavailable, "the store takes no writes now"},
		{
			"a secondary", time.Minute, onUpdate(mongotest.Reply(mongotest.Failure(10107, "NotWritablePrimary", "secret", "RetryableWriteError", "NoWritesPerformed"))),
			driver.CodeUnavailable, "the store takes no writes now",
		},
		{"never answered", time.Minute, onUpdate(mongotest.Stall()), driver.CodeUnavailable, "the store did not answer in time"},
		{"cut", time.Minute, onUpdate(mongotest.CutBefore()), driver.CodeUnavailable, "the store cannot be reached"},
		{"not answered so far", 100 * time.Millisecond, onUpdate(mongotest.Stall()), driver.CodeUnavailable, ""},
		{"unknown", time.Minute, onUpdate(mongotest.Reply(mongotest.Failure(99999, "SomethingNew", "secret"))), driver.CodeInternal, ""},
		{"the clocks are apart", time.Minute, func(s *Store, _ *mongotest.Proxy) {
			s.apart.Store(driver.Errorf(driver.CodeUnavailable, "secret"))
		}, driver.CodeUnavailable, "the store takes no writes now"},
		{"too slow", time.Minute, func(s *Store, proxy *mongotest.Proxy) {
			proxy.Set(slowly(s.life, 2*leaseBeats*s.fleet.every))
			until(t.Context(), t, s, func(c *clock) bool { return c.tooSlow(c.term) != nil })
		}, driver.CodeUnavailable, "the store takes no writes now"},
		{"the request ended", 0, func(*Store, *mongotest.Proxy) {}, driver.CodeUnavailable, "the request took longer than this server allows"},
		{"closed", time.Minute, func(s *Store, _ *mongotest.Proxy) {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}, driver.CodeUnavailable, "the store is closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newFleetServer(t, uri, Options{})
			if _, err := s.Commit(t.Context(), write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { proxy.Set(nil) })
			test.spoil(s, proxy)
			ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
			defer cancel()
			_, err := s.Commit(ctx, write("a", "2", 1))
			if got := driver.RefusalOf(err); driver.CodeOf(err) != test.code || got != test.want || strings.Contains(got, "secret") {
				t.Errorf("%q, want %q: %v (%q)", got, test.want, err, driver.CodeOf(err))
			}
		})
	}
}

// An error that several calls may end with is left as it is.
func TestRefusedIsAnother(t *testing.T) {
	for _, err := range []error{errDead, mongo.ErrClientDisconnected} {
		if got := refused(wrap(err, "committing")); driver.RefusalOf(got) == "" || driver.RefusalOf(err) != "" {
			t.Errorf("%v: %q, and %q before", err, driver.RefusalOf(got), driver.RefusalOf(err))
		}
	}
}
