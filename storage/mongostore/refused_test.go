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
	t.Parallel()
	// end ends the request.
	type spoil func(s *Store, proxy *mongotest.Proxy, end func())
	onUpdate := func(answer mongotest.Answer) spoil {
		return func(_ *Store, proxy *mongotest.Proxy, _ func()) {
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("update")(c) {
					return answer
				}
				return mongotest.Pass()
			})
		}
	}
	for _, test := range []struct {
		name  string
		spoil spoil
		code  driver.Code
		want  string
	}{
		{"no rights", onUpdate(mongotest.Reply(mongotest.Failure(13, "Unauthorized", "secret"))), driver.CodeUnavailable, "the store takes no writes now"},
		{
			"a secondary", onUpdate(mongotest.Reply(mongotest.Failure(10107, "NotWritablePrimary", "secret", "RetryableWriteError", "NoWritesPerformed"))),
			driver.CodeUnavailable, "the store takes no writes now",
		},
		{"never answered", onUpdate(mongotest.Stall()), driver.CodeUnavailable, "the store did not answer in time"},
		{"cut", onUpdate(mongotest.CutBefore()), driver.CodeUnavailable, "the store cannot be reached"},
		{"not answered so far", func(_ *Store, proxy *mongotest.Proxy, end func()) {
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("update")(c) {
					end()
					return mongotest.Stall()
				}
				return mongotest.Pass()
			})
		}, driver.CodeUnavailable, ""},
		{"unknown", onUpdate(mongotest.Reply(mongotest.Failure(99999, "SomethingNew", "secret"))), driver.CodeInternal, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newServerOf(t, uri, Options{Timeout: 2 * time.Second})
			if _, err := commitAgain(t.Context(), s, write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { proxy.Set(nil) })
			ctx, end := context.WithTimeout(t.Context(), hangs)
			defer end()
			test.spoil(s, proxy, end)
			_, err := driver.CommitOne(ctx, s, write("a", "2", 1))
			// Where the machine is slow, it may be refused for that.
			for tries := 1; tries < 5 && driver.RefusalOf(err) != test.want; tries++ {
				_, err = driver.CommitOne(ctx, s, write("a", "2", 1))
			}
			if got := driver.RefusalOf(err); driver.CodeOf(err) != test.code || got != test.want || strings.Contains(got, "secret") {
				t.Errorf("%q, want %q: %v (%q)", got, test.want, err, driver.CodeOf(err))
			}
		})
	}
}

// An error that several calls may end with is left as it is.
func TestRefusedIsAnother(t *testing.T) {
	for _, err := range []error{errEmptied, mongo.ErrClientDisconnected} {
		if got := refused(wrap(err, "committing")); driver.RefusalOf(got) == "" || driver.RefusalOf(err) != "" {
			t.Errorf("%v: %q, and %q before", err, driver.RefusalOf(got), driver.RefusalOf(err))
		}
	}
}
