package mongostore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// What all engines do with commits of several documents.
func TestTransactionConformance(t *testing.T) {
	server := mongotest.NewServer(t)
	drivertest.Run(t, drivertest.Harness{
		Parallel: true,
		Groups:   []string{"Write", "Linear", "Lifecycle"},
		New: func(t *testing.T) drivertest.Opener {
			_, uri := mongotest.NewTransactions(t, server).Behind(t)
			return func(t *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				t.Helper()
				s, err := Open(t.Context(), uri, Options{Collections: collections, Clock: clock})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return s
			}
		},
	})
}

// The commands of a commit of several documents, in order.
var steps = []struct {
	name string
	is   func(mongotest.Command) bool
}{
	{"the note", func(c mongotest.Command) bool { return c.Name == "insert" && c.Collection() == metaName }},
	{"the updates", of("update")},
	{"the deletion of the note", func(c mongotest.Command) bool { return c.Name == "delete" && c.Collection() == metaName }},
	{"the end", func(c mongotest.Command) bool { return c.Name == "commitTransaction" }},
}

// batch is a commit of three documents of two collections, one of which is only compared.
func batch(id string, expected int64) []driver.Write {
	ws := []driver.Write{*write("a", id+"a", expected), *write("b", id+"b", expected), *write("c", id+"c", expected), *write("compared", id+"d", 0)}
	ws[2].Collection, ws[3].Compare = "thingsToo", true
	return ws
}

func commitBatch(ctx context.Context, s *Store, ws []driver.Write) ([]*driver.Version, error) {
	return again(ctx, func(ctx context.Context) ([]*driver.Version, error) { return s.Commit(ctx, ws) })
}

// wantBatch checks that a commit was made once, as a whole, and returns when.
func wantBatch(t *testing.T, vs []*driver.Version, err error, number int64) driver.Instant {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs[:3] {
		if v.Number != number || v.RecordedAt != vs[0].RecordedAt {
			t.Errorf("%+v, want version %d of %s", v, number, vs[0].RecordedAt)
		}
	}
	if vs[3] != nil {
		t.Errorf("%+v was only to be compared", vs[3])
	}
	return vs[0].RecordedAt
}

// A server is stopped at each step of a commit of several documents, for longer than that
// lives, and goes on when others have read at later instants: nothing of the commit appears
// before them.
func TestFrozenTransaction(t *testing.T) {
	t.Parallel()
	server := mongotest.NewServer(t)
	for _, step := range steps {
		for name, alone := range map[string]bool{" of the only server": true, " of one of two": false} {
			t.Run(step.name+name, func(t *testing.T) {
				t.Parallel()
				ctx := bounded(t)
				tx := mongotest.NewTransactions(t, server)
				tx.Lifetime = 3 * time.Second
				proxy, uri := tx.Behind(t)
				_, direct := tx.Beside(t, proxy, uri)
				behind := newServerOf(t, uri, Options{})
				var beside *Store
				if !alone {
					beside = newServerOf(t, direct, Options{})
				}
				vs, err := commitBatch(ctx, behind, batch("1", 0))
				wantBatch(t, vs, err, 1)
				frozen, release := freezeBefore(proxy, step.is, func(c mongotest.Command) mongotest.Answer { return tx.Answer(proxy, c) })
				defer release()
				type result struct {
					vs  []*driver.Version
					err error
				}
				late := make(chan result, 1)
				go func() {
					vs, err := commitBatch(ctx, behind, batch("2", 1))
					late <- result{vs, err}
				}()
				await(ctx, t, frozen)
				if alone {
					beside = newServerOf(t, direct, Options{})
				}
				v, err := commitAgain(ctx, beside, write("other", "other", 0))
				if err != nil {
					t.Fatal(err)
				}
				var o observer
				o.acknowledged.Store(int64(v.RecordedAt))
				if _, err := again(ctx, beside.Now); err != nil { // the transaction may be open for longer than a call takes
					t.Fatal(err)
				}
				o.read(ctx, beside)
				release()
				r := <-late
				if at := wantBatch(t, r.vs, r.err, 2); len(o.observations) > 0 && at <= o.observations[0].at {
					t.Errorf("a commit at %s, and others have read at %s before", at, o.observations[0].at)
				}
				o.read(ctx, behind)
				for _, problem := range o.verify(ctx, []*Store{behind, beside, beside}) {
					t.Error(problem)
				}
				checkAll(t, beside)
			})
		}
	}
}

// A server is lost at the end of a commit of several documents, and its transaction is open for
// longer than a call may take: another one that starts waits for it, and logs that.
func TestOpenAwaitsTransaction(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	tx := mongotest.NewTransactions(t, mongotest.NewServer(t))
	proxy, uri := tx.Behind(t)
	_, direct := tx.Beside(t, proxy, uri)
	lost := newServerOf(t, uri, Options{})
	vs, err := commitBatch(ctx, lost, batch("1", 0))
	wantBatch(t, vs, err, 1)
	frozen, release := freezeBefore(proxy, steps[3].is, func(c mongotest.Command) mongotest.Answer { return tx.Answer(proxy, c) })
	defer release()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = commitBatch(ctx, lost, batch("2", 1))
	}()
	await(ctx, t, frozen)
	client, err := mongo.Connect(options.Client().ApplyURI(direct).SetRetryWrites(false))
	if err != nil {
		t.Fatal(err)
	}
	log := &logLines{text: make(chan string, 100)}
	go func() {
		for told := 0; told < 2 && ctx.Err() == nil; { // by the second line one call has failed
			select {
			case text := <-log.text:
				told += strings.Count(text, "transactionLifetimeLimitSeconds")
			case <-ctx.Done():
			}
		}
		release()
	}()
	slow := quick
	slow.life = 10 * time.Second // a change of the clock document that a busy machine delays does not fail
	s, err := open(ctx, client, databaseOf(direct), Options{
		Collections: []driver.Collection{{Name: "things"}, {Name: "thingsToo"}}, timing: slow, Timeout: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, ended)
	checkAll(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The connection is cut at each step of a commit of several documents, before the server has
// carried that out or after, or there is no answer: the commit is made, once.
func TestCutTransaction(t *testing.T) {
	t.Parallel()
	server := mongotest.NewServer(t)
	for _, step := range steps {
		for name, fault := range map[string]mongotest.Answer{"before": mongotest.CutBefore(), "after": mongotest.CutAfter(), "no answer to": mongotest.Stall()} {
			t.Run(name+" "+step.name, func(t *testing.T) {
				t.Parallel()
				ctx := bounded(t)
				tx := mongotest.NewTransactions(t, server)
				tx.Lifetime = 3 * time.Second
				proxy, uri := tx.Behind(t)
				s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 2}}})
				var armed, happened atomic.Bool
				proxy.Set(func(c mongotest.Command) mongotest.Answer {
					if !armed.Load() || !step.is(c) || happened.Swap(true) {
						return tx.Answer(proxy, c)
					}
					if name == "after" {
						if answer := tx.Answer(proxy, c); !answer.Passes() {
							return mongotest.CutBefore() // it was carried out
						}
					}
					return fault
				})
				for n := range int64(4) {
					armed.Store(n == 3)
					vs, err := commitBatch(ctx, s, batch(fmt.Sprint(n), n))
					wantBatch(t, vs, err, n+1)
				}
				if !happened.Load() {
					t.Error("nothing was cut")
				}
				s.clock.mu.Lock()
				flights := len(s.clock.flights)
				s.clock.mu.Unlock()
				if flights != 0 {
					t.Errorf("%d attempts are in flight at the end", flights)
				}
				checkAll(t, s)
			})
		}
	}
}

// A transaction whose updates take longer than the first attempt may last gets longer with each.
func TestSlowTransaction(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	tx := mongotest.NewTransactions(t, mongotest.NewServer(t))
	proxy, uri := tx.Behind(t)
	s := newServerOf(t, uri, Options{})
	slow := 3 * s.clock.lifeOf(0, 0)
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("update")(c) {
			pause(ctx, slow)
		}
		return tx.Answer(proxy, c)
	})
	vs, err := s.Commit(ctx, batch("slow", 0))
	wantBatch(t, vs, err, 1)
}

// A commit of several documents takes four commands, and one more to make documents, whatever
// their number. All of a transaction is part of it, and nothing else is.
func TestTransactionCommands(t *testing.T) {
	const documents = 100
	ctx := bounded(t)
	tx := mongotest.NewTransactions(t, mongotest.NewServer(t))
	proxy, uri := tx.Behind(t)
	s := newServerOf(t, uri, Options{timing: unhurried})
	var mu sync.Mutex
	var got []string
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !c.Hello() {
			command := c.Name
			if _, outside := c.Body.Lookup("autocommit").BooleanOK(); !outside {
				command += " " + c.Collection()
			}
			mu.Lock()
			got = append(got, command)
			mu.Unlock()
		}
		return tx.Answer(proxy, c)
	})
	ws := make([]driver.Write, documents)
	for round, want := range [][]string{
		{"insert things", "insert asof.meta", "update", "delete", "commitTransaction"},
		{"insert asof.meta", "update", "delete", "commitTransaction"},
	} {
		for i := range ws {
			ws[i] = *write(fmt.Sprint("k", i), fmt.Sprint(round, " ", i), int64(round))
		}
		mu.Lock()
		got = nil
		mu.Unlock()
		if _, err := s.Commit(ctx, ws); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		mu.Unlock()
	}
}
