package mongostore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A write whose attempts have no answer ends, and holds up the others until then
// only as long as one of them may still be carried out.
func TestDoubtEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		answer func(update int64) mongotest.Answer
		err    string // empty: it succeeds
	}{
		{"never answered", func(int64) mongotest.Answer { return mongotest.Stall() }, "nothing was"},
		{"cut each time", func(int64) mongotest.Answer { return mongotest.CutBefore() }, "nothing was"},
		{"not answered for some time", func(n int64) mongotest.Answer {
			if n <= 3 {
				return mongotest.Stall()
			}
			return mongotest.Pass()
		}, ""},
		{"refused after one", func(n int64) mongotest.Answer {
			if n == 1 {
				return mongotest.CutBefore()
			}
			return mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not any more"))
		}, "not any more"},
		{"refused after two", func(n int64) mongotest.Answer {
			if n <= 2 {
				return mongotest.CutBefore()
			}
			return mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not any more"))
		}, "not any more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, behind, beside := pair(ctx, t, Options{})
			if _, err := commitAgain(ctx, behind, write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			var updates atomic.Int64
			reached := make(chan struct{})
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if !of("update")(c) {
					return mongotest.Pass()
				}
				n := updates.Add(1)
				if n == 1 {
					close(reached)
				}
				return test.answer(n)
			})
			ended := make(chan error, 1)
			go func() {
				_, err := driver.CommitOne(ctx, behind, write("a", "2", 1))
				// Where the machine is slow, it may end for that.
				for tries := 1; tries < 5 && err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)); tries++ {
					_, err = driver.CommitOne(ctx, behind, write("a", "2", 1))
				}
				ended <- err
			}()
			await(ctx, t, reached)
			if _, err := commitAgain(ctx, beside, write("b", "b", 0)); err != nil {
				t.Errorf("another server's commit: %v", err)
			}
			err := <-ended
			if ctx.Err() != nil || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("it ended with %v; want %q", err, test.err)
			}
			behind.clock.mu.Lock()
			flights := len(behind.clock.flights)
			behind.clock.mu.Unlock()
			if flights != 0 {
				t.Errorf("%d attempts are in flight at the end", flights)
			}
			proxy.Set(nil)
			v, err := commitAgain(ctx, behind, write("a", "2", 1))
			if err != nil || v.Number != 2 {
				t.Fatalf("the same again: %v, %v", v, err)
			}
		})
	}
}

// Whoever read a version here, in whichever way and however large it is, updates it
// with one command.
func TestUpdateOfWhatWasRead(t *testing.T) {
	const large = 200 << 10
	for _, tc := range []struct {
		name  string
		bytes int
		read  func(s *Store) error
	}{
		{"by key", 0, func(s *Store) error {
			_, err := s.Get(t.Context(), "tools", []driver.Ref{{Key: "go", At: driver.Forever}}, nil)
			return err
		}},
		{"by key, large", large, func(s *Store) error {
			_, err := s.Get(t.Context(), "tools", []driver.Ref{{Key: "go", At: driver.Forever}}, nil)
			return err
		}},
		{"on a page", 0, func(s *Store) error {
			_, err := s.Query(t.Context(), &driver.Query{Collection: "tools", At: driver.Forever, Limit: 10})
			return err
		}},
		{"on a page of what was current then", 0, func(s *Store) error {
			now, err := s.Now(t.Context())
			if err == nil {
				_, err = s.Query(t.Context(), &driver.Query{Collection: "tools", At: now, Limit: 10})
			}
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent recorder
			s := openRecorded(t, Bounds{Bytes: 10 * large}, &sent)
			commitMore(t, s, 1, 2, tc.bytes)
			s.collections["tools"].forget("go")
			if err := tc.read(s); err != nil {
				t.Fatal(err)
			}
			sent.take()
			commitMore(t, s, 3, 3, tc.bytes)
			if commands := sent.take(); len(commands) != 1 {
				t.Errorf("the update took %d commands, want 1:\n%v", len(commands), commands)
			}
		})
	}
}

func TestHeadsAreBounded(t *testing.T) {
	const room = 4
	c := &collection{name: "tools", store: &Store{heads: heads{Cache: lru.New[documentKey, *head](1)}}}
	h := func(key string, number int64, bytes int) *head {
		return &head{record: record{Version: driver.Version{Key: key, Number: number, Data: make([]byte, bytes), Seal: []byte("sealed")}}}
	}
	c.remember("0", h("0", 1, 100))
	if c.store.heads.Len() != 0 {
		t.Error("a head is kept that has no room")
	}
	bound := room * (headOverhead + 356)
	c.store.heads.Cache = lru.New[documentKey, *head](bound)
	put := func(key string, number int64, bytes int) {
		c.remember(key, h(key, number, bytes))
		if size := c.store.heads.Bytes(); size > bound {
			t.Fatalf("after %s, version %d: %d bytes, at most %d", key, number, size, bound)
		}
	}
	knows := func(key string, number int64, want bool) {
		t.Helper()
		if got := c.cached(key, number) != nil; got != want {
			t.Errorf("%s, version %d: it is known: %t, want %t", key, number, got, want)
		}
	}
	for i := range 2 * room {
		put(fmt.Sprint(i), 1, 90)
	}
	for i := range 2 * room {
		knows(fmt.Sprint(i), 1, i >= room)
	}
	put("4", 1, 90)
	put("8", 1, 90) // the last of those that were looked at goes
	knows("4", 1, true)
	knows("5", 1, false)
	put("7", 3, 90)
	put("7", 2, 90)
	knows("7", 3, true)
	knows("7", 2, false)
	put("large", 1, bound-headOverhead-256-len("large"))
	knows("7", 3, false)
	knows("large", 1, true)
	c.forget("large")
	knows("large", 1, false)
	if c.store.heads.Bytes() != 0 {
		t.Errorf("%d bytes are counted of nothing", c.store.heads.Bytes())
	}
}

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

// A write that is longer on its way than it may live is tried again, and may take longer
// each time.
func TestSlowWrite(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]int{"a small one": 0, "a large one": 1_000_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, behind, beside := pair(ctx, t, Options{})
			slow := 3 * behind.clock.lifeOf(large, 0)
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("update")(c) {
					pause(ctx, slow)
				}
				return mongotest.Pass()
			})
			defer proxy.Set(nil)
			w := write("a", "1", 0)
			w.Data = fmt.Appendf(nil, `{"text":"%0*d"}`, large, 0)
			if _, err := driver.CommitOne(ctx, behind, w); err != nil {
				t.Fatal(err)
			}
			if _, err := driver.CommitOne(ctx, beside, write("a", "2", 1)); err != nil {
				t.Error(err)
			}
			checkAll(t, beside)
		})
	}
}

// How long a write may live grows with its size and with the attempts, up to a bound.
func TestLives(t *testing.T) {
	c := &clock{timing: usual}
	for _, test := range []struct {
		bytes, attempt int
		want           time.Duration
	}{
		{0, 0, time.Second},
		{smallWrite, 0, time.Second},
		{smallWrite + lifeBytes, 0, 2 * time.Second},
		{0, 2, 4 * time.Second},
		{0, 9, longestLife},
		{smallWrite + 14*lifeBytes, 3, 60 * time.Second},
	} {
		if got := c.lifeOf(test.bytes, test.attempt); got != test.want {
			t.Errorf("%d bytes, attempt %d: %v, want %v", test.bytes, test.attempt, got, test.want)
		}
	}
}

// Replies of commits are lost on many connections at once: none of those that were
// carried out is said not to have been.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	client, _, err := connect(uri) // as the program does
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(ctx, client, databaseOf(uri), Options{Collections: []driver.Collection{{Name: "things"}}, timing: quick})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	const writers = 16
	for n := range writers {
		if _, err := driver.CommitOne(ctx, s, write(fmt.Sprint("k", n), fmt.Sprint("first ", n), 0)); err != nil {
			t.Fatal(err)
		}
	}
	var updates atomic.Int64
	poseAsPrimary(proxy, func(c mongotest.Command) mongotest.Answer {
		if of("update")(c) && updates.Add(1) <= writers {
			return mongotest.CutAfter()
		}
		return mongotest.Pass()
	})
	var done sync.WaitGroup
	for n := range writers {
		done.Go(func() {
			key := fmt.Sprint("k", n)
			_, err := driver.CommitOne(ctx, s, write(key, key, 1))
			found, readErr := again(ctx, func(ctx context.Context) ([]*driver.Version, error) {
				return s.Get(ctx, "things", []driver.Ref{{Key: key, Number: 2}}, nil)
			})
			switch {
			case readErr != nil:
				t.Error(readErr)
			case err == nil && found[0] == nil:
				t.Errorf("%s was acknowledged, and is not there", key)
			case driver.RefusalOf(err) != "" && found[0] != nil:
				t.Errorf("%s is there, and was said not to be: %v", key, err)
			}
		})
	}
	done.Wait()
	proxy.Set(nil)
}

// Close waits for a commit whose caller still waits for it.
func TestCloseAwaitsCommits(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newServerOf(t, uri, Options{timing: unending})
	frozen, release := freeze(proxy, of("update"))
	defer release()
	committed := make(chan error, 1)
	go func() {
		_, err := driver.CommitOne(ctx, s, write("a", "1", 0))
		committed <- err
	}()
	await(ctx, t, frozen)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Errorf("Close has returned (%v), and a commit is in flight", err)
	case <-time.After(200 * time.Millisecond):
	}
	release()
	if err := <-committed; err != nil {
		t.Error(err)
	}
}
