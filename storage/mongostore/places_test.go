package mongostore_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// Each fault in the one command that commits: the caller gets the commit, or
// where it gives up before, learns of it by the same write; there is one
// version, and what was read meanwhile stays.
func TestLostReplyAtEachPlace(t *testing.T) {
	server := newServer(t)
	for f := noFault + 1; f < faults; f++ {
		for _, c := range []struct {
			name    string
			command string
			before  int64 // versions that there are already
			deleted bool
		}{
			{"create", "insert", 0, false},
			{"update", "update", 1, false},
			{"delete", "update", 2, true},
			{"update that overflows", "update", 5, false},
		} {
			t.Run(fmt.Sprintf("%s, %s", f, c.name), func(t *testing.T) {
				t.Parallel()
				w := &driver.Write{
					ID: "it", Author: "it", Collection: "things", Key: "k", Expected: c.before, Op: driver.OpUpdate, Data: []byte(`{"n":-1}`),
				}
				if c.deleted {
					w.Op, w.Deleted, w.Data = driver.OpDelete, true, nil
				}
				faultyCommit(t, server, f, c.command, w)
			})
		}
	}
}

func faultyCommit(t *testing.T, server *server, f fault, command string, w *driver.Write) {
	uri, err := url.Parse(server.database(t))
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, uri.Host, 1)
	uri.Host, uri.RawQuery = p.address(), "directConnection=true&retryReads=false&retryWrites=false"
	ctx := t.Context()
	s, err := mongostore.Open(ctx, uri.String(), mongostore.Options{
		Collections: []driver.Collection{{Name: "things"}}, Bounds: map[string]mongostore.Bounds{"things": {Versions: 4}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	for n := range w.Expected {
		if _, err := driver.CommitOne(ctx, s, &driver.Write{
			ID: fmt.Sprint(n), Collection: w.Collection, Key: w.Key, Expected: n, Op: driver.OpUpdate, Data: []byte(`{"n":0}`),
		}); err != nil {
			t.Fatal(err)
		}
	}
	numberNow := func() (driver.Instant, int64) {
		at, err := s.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return at, numberAt(ctx, t, s, w, at)
	}
	left := 1
	p.hold = make(chan struct{})
	p.script = func(name string) fault {
		if name != command {
			return noFault
		}
		if left--; left == 0 {
			return f
		}
		return noFault
	}
	p.faulty.Store(true)
	var v *driver.Version
	if f == late || f == stalled {
		given, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		_, err := driver.CommitOne(given, s, w)
		cancel()
		// A connection that was cut may have been replaced in time.
		if driver.CodeOf(err) != driver.CodeUnavailable && (f != late || err != nil) {
			t.Fatalf("Commit without an answer: %v", err)
		}
		at, before := numberNow()
		if err != nil && before != w.Expected {
			t.Errorf("while the outcome is unknown there is version %d at Now, want %d", before, w.Expected)
		}
		close(p.hold)
		// The connections that break now may take this one with them.
		for v == nil {
			if v, err = driver.CommitOne(ctx, s, w); err != nil && driver.CodeOf(err) != driver.CodeUnavailable {
				t.Fatalf("Commit again: %v", err)
			}
		}
		if after := numberAt(ctx, t, s, w, at); after != before {
			t.Errorf("at %d there was version %d, and later %d", at, before, after)
		}
	} else if v, err = driver.CommitOne(ctx, s, w); err != nil {
		t.Fatalf("Commit: %v", err)
	}
	if p.happened[f].Load() != 1 {
		t.Errorf("the fault happened %d times: %s", p.happened[f].Load(), p.tally())
	}
	again, err := driver.CommitOne(ctx, s, w)
	if err != nil {
		t.Fatalf("Commit again: %v", err)
	}
	if diff := cmp.Diff(v, again); diff != "" {
		t.Errorf("the same write, again: -first +again\n%s", diff)
	}
	if _, now := numberNow(); v.Number != w.Expected+1 || now != v.Number {
		t.Errorf("version %d was made, and %d is current; want %d", v.Number, now, w.Expected+1)
	}
	if err := s.Check(ctx, func(problem string) { t.Errorf("Check: %s", problem) }); err != nil {
		t.Error(err)
	}
}

// A connection that has fallen silent, and stays so, holds up neither the write
// on it nor those of other documents for longer than they may take.
func TestSilentConnection(t *testing.T) {
	server := newServer(t)
	const tries = 5 // a slow machine may need longer now and then
	for try := 1; ; try++ {
		problems := besideSilence(t, server)
		if len(problems) == 0 {
			return
		}
		if try == tries {
			t.Fatalf("of %d times, it was held up each time: %q", tries, problems)
		}
	}
}

// besideSilence writes while a connection is silent, and says which writes were held
// up by that.
func besideSilence(t *testing.T, server *server) (problems []string) {
	t.Helper()
	uri, err := url.Parse(server.database(t))
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, uri.Host, 1)
	uri.Host, uri.RawQuery = p.address(), "directConnection=true"
	s, err := mongostore.Open(t.Context(), uri.String(), mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	p.hold = make(chan struct{}) // never closed
	silent := make(chan struct{})
	p.script = func(name string) fault {
		select {
		case <-silent:
			return noFault
		default:
		}
		if name != "insert" {
			return noFault
		}
		close(silent)
		return stalled
	}
	p.faulty.Store(true)
	// Below the 10 s of the longest attempt.
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	var mu sync.Mutex
	var done sync.WaitGroup
	commit := func(key string) {
		v, err := driver.CommitOne(ctx, s, &driver.Write{ID: key, Collection: "things", Key: key, Op: driver.OpCreate, Data: []byte(`{}`)})
		if err != nil || v.Number != 1 {
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, fmt.Sprintf("Commit of %s: %+v, %v", key, v, err))
		}
	}
	done.Go(func() { commit("held") })
	select {
	case <-silent:
	case <-ctx.Done():
	}
	for i := range 8 {
		done.Go(func() { commit(fmt.Sprint(i)) })
	}
	done.Wait()
	return problems
}

func numberAt(ctx context.Context, t *testing.T, e driver.Engine, w *driver.Write, at driver.Instant) int64 {
	t.Helper()
	vs, err := e.Get(ctx, w.Collection, []driver.Ref{{Key: w.Key, At: at}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if vs[0] == nil {
		return 0
	}
	return vs[0].Number
}
