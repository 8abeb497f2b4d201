package mongostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// quick keeps tests short: what they wait for are renewals and the ends of lives. unhurried is for
// those whose lease is not to end, however slow the machine.
var (
	quick     = timing{life: 300 * time.Millisecond, skew: 50 * time.Millisecond, renew: 60 * time.Millisecond}
	unhurried = timing{life: time.Hour, skew: time.Second, renew: time.Minute}
)

// hangs bounds what would hang otherwise. Nothing takes nearly as long, on any machine.
const hangs = 5 * time.Minute

// bounded is the context of a test that would hang otherwise.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	t.Cleanup(cancel)
	return ctx
}

// again makes a call until it is not told any more that the store cannot do it now.
func again[T any](ctx context.Context, call func(context.Context) (T, error)) (v T, err error) {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	for {
		if v, err = call(ctx); driver.CodeOf(err) != driver.CodeUnavailable || ctx.Err() != nil {
			return v, err
		}
	}
}

func commitAgain(ctx context.Context, s *Store, w *driver.Write) (*driver.Version, error) {
	return again(ctx, func(ctx context.Context) (*driver.Version, error) { return driver.CommitOne(ctx, s, w) })
}

func loadAgain(ctx context.Context, s *Store, vs []driver.Version) (driver.LoadResult, error) {
	return again(ctx, func(ctx context.Context) (driver.LoadResult, error) { return s.Load(ctx, vs) })
}

// newServer opens a store as one of several on a database. It can be left
// behind as a process that was killed leaves it.
func newServerOf(t *testing.T, uri string, o Options) *Store {
	t.Helper()
	if o.Collections == nil {
		o.Collections = []driver.Collection{{Name: "things"}, {Name: "thingsToo"}}
	}
	if o.timing == (timing{}) {
		o.timing = quick
	}
	s, err := again(t.Context(), func(ctx context.Context) (*Store, error) {
		client, err := mongo.Connect(options.Client().ApplyURI(uri).SetRetryWrites(false))
		if err != nil {
			return nil, err
		}
		s, err := open(ctx, client, databaseOf(uri), o)
		if err != nil {
			o.Timeout *= 2
			err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx)))
		}
		return s, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// offBy is the system's clock, off by some time.
func offBy(skew time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(skew) }
}

func write(key, id string, expected int64) *driver.Write {
	return &driver.Write{ID: id, Collection: "things", Key: key, Expected: expected, Op: driver.OpUpdate, Author: id, Data: []byte(`{}`)}
}

// see is what there is at an instant.
func see(ctx context.Context, s *Store, at driver.Instant) (string, error) {
	vs, err := s.Query(ctx, &driver.Query{Collection: "things", At: at})
	var seen strings.Builder
	for _, v := range vs {
		fmt.Fprintf(&seen, " %s@%d by %s", v.Key, v.Number, v.Author)
	}
	return seen.String(), err
}

// observation is what was seen at an instant.
type observation struct {
	at   driver.Instant
	seen string
}

// observer lets servers write and read at the same time, and finds what does not hold: a
// read repeated at the instant that was reported, on any server, says something else; a
// read does not see what was acknowledged before it began, by any server; times of a
// document do not increase.
type observer struct {
	mu           sync.Mutex
	observations []observation
	broken       []string
	acknowledged atomic.Int64 // the last time of a commit
}

func (o *observer) say(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = append(o.broken, fmt.Sprintf(format, args...))
}

// read reads at Now, and remembers what was there.
func (o *observer) read(ctx context.Context, s *Store) bool {
	before := driver.Instant(o.acknowledged.Load())
	at, err := s.Now(ctx)
	if err == nil && at < before {
		o.say("Now is %d, and a commit at %d was acknowledged before", at, before)
	}
	var seen string
	if err == nil {
		seen, err = see(ctx, s, at)
	}
	if err != nil {
		o.say("reading: %v", err)
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.observations = append(o.observations, observation{at, seen})
	return true
}

// commit commits, and notes when that was acknowledged.
func (o *observer) commit(ctx context.Context, s *Store, w *driver.Write) (number int64, ok bool) {
	v, err := commitAgain(ctx, s, w)
	var conflict *driver.ConflictError
	switch {
	case errors.As(err, &conflict):
		return conflict.Lost[0].Actual, true
	case err != nil:
		o.say("Commit: %v", err)
		return 0, false
	}
	for last := o.acknowledged.Load(); last < int64(v.RecordedAt) && !o.acknowledged.CompareAndSwap(last, int64(v.RecordedAt)); {
		last = o.acknowledged.Load()
	}
	return v.Number, true
}

// run lets clients of each server write and read.
func (o *observer) run(ctx context.Context, servers []*Store, rounds int) {
	const clients, documents = 4, 3
	var done sync.WaitGroup
	for n, s := range servers {
		for client := range clients {
			done.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), uint64(client)))
				var expected [documents]int64
				for round := range rounds {
					if round%2 == 0 {
						d := random.IntN(documents)
						var ok bool
						if expected[d], ok = o.commit(ctx, s, write(fmt.Sprintf("k%d.%d", client%2, d), fmt.Sprintf("%d.%d.%d", n, client, round), expected[d])); !ok {
							return
						}
					}
					if !o.read(ctx, s) {
						return
					}
				}
			})
		}
	}
	done.Wait()
}

// verify looks again at all that was seen, on every server, and returns what does not hold.
func (o *observer) verify(ctx context.Context, servers []*Store) []string {
	for i, was := range o.observations {
		s := servers[i%len(servers)]
		if err := s.Settle(ctx, was.at); err != nil {
			o.say("Settle(%d): %v", was.at, err)
			continue
		}
		if seen, err := see(ctx, s, was.at); err != nil || seen != was.seen {
			o.say("at %d there was\n%s\nand later, on another server,\n%s\n%v", was.at, was.seen, seen, err)
		}
	}
	last := make(map[string]driver.Instant)
	for v, err := range servers[0].Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			o.say("Log: %v", err)
			break
		}
		if v.RecordedAt <= last[v.Key] {
			o.say("version %d of %s is of %d, the one before it of %d", v.Number, v.Key, v.RecordedAt, last[v.Key])
		}
		last[v.Key] = v.RecordedAt
	}
	return o.broken
}

func observe(t *testing.T, servers []*Store, rounds int) (broken []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var o observer
	o.run(ctx, servers, rounds)
	t.Logf("%d reads", len(o.observations))
	return o.verify(ctx, servers)
}

// unending is quick, but for lives, which do not end.
var unending = timing{life: time.Minute, skew: time.Second, renew: 60 * time.Millisecond}

// kill leaves a store as a killed process does: it tells nobody.
func kill(s *Store) {
	s.clock.stop()
	<-s.clock.ended
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.left = true
}

// until lets a server change the clock document until its clock is as wanted.
func until(ctx context.Context, t *testing.T, s *Store, wanted func(*clock) bool) {
	t.Helper()
	for {
		s.clock.mu.Lock()
		is := wanted(s.clock)
		s.clock.renew = true
		s.clock.mu.Unlock()
		if is {
			return
		}
		if _ = s.clock.edits.do(ctx); ctx.Err() != nil {
			t.Fatal("it does not happen")
		}
	}
}

// shares reports whether a server has no lease.
func shares(c *clock) bool { return !c.owns(c.state.Lease) }

// await waits for something to happen.
func await(ctx context.Context, t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-ctx.Done():
		t.Fatal("it does not happen")
	}
}

// of selects the commands of a name about documents of the collection things.
func of(name string) func(mongotest.Command) bool {
	return func(c mongotest.Command) bool { return c.Name == name && c.Collection() == "things" }
}

// pair opens two servers on one database, which share the clock, one of them behind a
// proxy.
func pair(ctx context.Context, t *testing.T, o Options) (proxy *mongotest.Proxy, behind, beside *Store) {
	t.Helper()
	server := mongotest.NewServer(t)
	proxy, uri, name := server.Behind(t)
	direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
	if err != nil {
		t.Fatal(err)
	}
	beside = newServerOf(t, direct, o)
	behind = newServerOf(t, uri, o)
	for _, s := range []*Store{behind, beside} {
		until(ctx, t, s, shares)
	}
	return proxy, behind, beside
}

// freeze holds up a server's commands from the first on that is selected, until it is
// released: as where a process, or its machine, was stopped. Then they arrive.
func freeze(proxy *mongotest.Proxy, at func(mongotest.Command) bool) (frozen <-chan struct{}, release func()) {
	return freezeBefore(proxy, at, func(mongotest.Command) mongotest.Answer { return mongotest.Pass() })
}

// freezeBefore is freeze for commands that are answered.
func freezeBefore(proxy *mongotest.Proxy, at func(mongotest.Command) bool, answer func(mongotest.Command) mongotest.Answer) (frozen <-chan struct{}, release func()) {
	reached, end := make(chan struct{}), make(chan struct{})
	var first, last sync.Once
	var is atomic.Bool
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if at(c) {
			is.Store(true)
			first.Do(func() { close(reached) })
		}
		if is.Load() {
			<-end
		}
		return answer(c)
	})
	return reached, func() { last.Do(func() { close(end) }) }
}

func databaseOf(uri string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(uri, "mongodb://"), "/")
	database, _, _ := strings.Cut(rest, "?")
	return database
}

// checkAll reports what is wrong with a store.
func checkAll(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
}
