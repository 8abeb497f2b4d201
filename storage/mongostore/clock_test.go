package mongostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
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

// skews are the clocks of three servers on one database.
var skews = [...]time.Duration{-maxAhead, 0, maxAhead}

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

func skewedServers(t *testing.T) []*Store {
	t.Helper()
	uri, _ := mongotest.NewServer(t).Database(t)
	var servers []*Store
	for _, skew := range skews {
		servers = append(servers, newServerOf(t, uri, Options{Clock: offBy(skew)}))
	}
	return servers
}

// Three servers whose clocks are as far apart as they may be: what one of them
// read stays what it was, for all of them. ASOF_DRIVERTEST_SCALE makes it longer.
func TestSkewedServers(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	if v := os.Getenv("ASOF_DRIVERTEST_SCALE"); v != "" {
		scale, err := strconv.Atoi(v)
		if err != nil || scale < 1 {
			t.Fatalf("ASOF_DRIVERTEST_SCALE=%q: want a whole number from 1", v)
		}
		rounds *= scale
	}
	for i, problem := range observe(t, skewedServers(t), rounds) {
		if i == 5 {
			t.Fatal("and more")
		}
		t.Error(problem)
	}
}

// Servers that do not agree with each other do not pass the test above.
func TestSelfishServersAreFound(t *testing.T) {
	t.Parallel()
	const tries = 5 // where the machine is slow their clocks are not far apart, compared with that
	for range tries {
		servers := skewedServers(t)
		for _, s := range servers {
			selfish(s)
		}
		if broken := observe(t, servers, 40); len(broken) > 0 {
			return
		}
	}
	t.Error("nothing was found to be wrong")
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

// selfish makes a store use its own clock whatever others do.
func selfish(s *Store) {
	kill(s)
	c := s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lease = grant{entry: "selfish", since: bson.NewDateTimeFromTime(time.Now().Add(time.Hour)), begun: c.elapsed(), life: time.Hour, top: driver.Forever}
}

// until lets a server change the clock document until its clock is as wanted.
func until(ctx context.Context, t *testing.T, s *Store, wanted func(*clock) bool) {
	t.Helper()
	for {
		s.clock.mu.Lock()
		is := wanted(s.clock)
		s.clock.poked = true
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
func shares(c *clock) bool { return c.lease.entry == "" }

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
		return mongotest.Pass()
	})
	return reached, func() { last.Do(func() { close(end) }) }
}

// A server is stopped between taking a time and the update, for longer than that lives,
// and goes on when others have read at later instants: the database refuses the update.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		alone  bool
		create bool
	}{
		{"an update", false, false},
		{"a create", false, true},
		{"an update of the only server", true, false},
		{"a create of the only server", true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, uri, name := mongotest.NewServer(t).Behind(t)
			direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
			if err != nil {
				t.Fatal(err)
			}
			behind := newServerOf(t, uri, Options{})
			var beside *Store
			if !test.alone {
				beside = newServerOf(t, direct, Options{})
			}
			w := write("a", "late", 0)
			if !test.create {
				if _, err := commitAgain(ctx, behind, write("a", "1", 0)); err != nil {
					t.Fatal(err)
				}
				w.Expected = 1
			}
			frozen, release := freeze(proxy, of("update"))
			defer release()
			late := make(chan error, 1)
			go func() {
				_, err := commitAgain(ctx, behind, w)
				late <- err
			}()
			await(ctx, t, frozen)
			if test.alone {
				beside = newServerOf(t, direct, Options{})
			}
			v, err := commitAgain(ctx, beside, write("b", "b", 0)) // acknowledged when nothing before it can appear
			if err != nil {
				t.Fatal(err)
			}
			var o observer
			o.acknowledged.Store(int64(v.RecordedAt))
			o.read(ctx, beside)
			release()
			if err := <-late; err != nil {
				t.Fatal(err)
			}
			o.read(ctx, behind)
			for _, problem := range o.verify(ctx, []*Store{behind, beside, beside}) {
				t.Error(problem)
			}
			// Every command that was held up has arrived by now.
			checkAll(t, beside)
		})
	}
}

// A server is killed when its commit is in flight: nobody waits for it for ever, and
// what it may have made is not after what was read meanwhile.
func TestKilledInFlight(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	first := newServerOf(t, uri, Options{})
	second := newServerOf(t, uri, Options{})
	until(ctx, t, first, shares)
	flight, err := first.clock.begin(ctx, 0, quick.life)
	if err != nil {
		t.Fatal(err)
	}
	kill(first)
	if now, err := second.Now(ctx); err != nil || now >= flight.at {
		t.Errorf("Now is %d (%v), and a commit at %d is in flight", now, err, flight.at)
	}
	v, err := driver.CommitOne(ctx, second, write("a", "1", 0)) // waits for what came before
	if err != nil || v.RecordedAt <= flight.at {
		t.Fatalf("a commit at %v (%v), after one in flight at %d", v, err, flight.at)
	}
	if now, err := second.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v) after a commit at %d", now, err, v.RecordedAt)
	}
}

// Whoever only reads is not held back for ever by a flight that was left behind.
func TestReadersEvict(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	first := newServerOf(t, uri, Options{})
	second := newServerOf(t, uri, Options{})
	until(ctx, t, first, shares)
	flight, err := first.clock.begin(ctx, 0, quick.life)
	if err != nil {
		t.Fatal(err)
	}
	kill(first)
	for now := driver.Instant(0); now < flight.at; {
		if now, err = second.Now(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// What a server handed out before it was killed counts for the next one,
// though its clock is behind.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := t.Context()
	first := newServerOf(t, uri, Options{})
	if _, err := commitAgain(ctx, first, write("a", "1", 0)); err != nil {
		t.Fatal(err)
	}
	at, err := first.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	kill(first)
	second := newServerOf(t, uri, Options{Clock: offBy(-time.Hour)})
	if now, err := second.Now(ctx); err != nil || now < at {
		t.Errorf("Now is %s (%v), and was %s", now, err, at)
	}
	if v, err := commitAgain(ctx, second, write("b", "2", 0)); err != nil || v.RecordedAt <= at {
		t.Errorf("a commit at %v (%v), and %s was read at before", v, err, at)
	}
}

// A server that is the only one acknowledges a commit while one before it is in flight, and is
// killed: the next one hands out no instant before what was acknowledged.
func TestKilledBesideSlowWrite(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	first := newServerOf(t, uri, Options{})
	slow, err := again(ctx, func(ctx context.Context) (*flight, error) { return first.clock.begin(ctx, 0, 4*quick.life) })
	if err != nil {
		t.Fatal(err)
	}
	v, err := commitAgain(ctx, first, write("a", "1", 0))
	if err != nil || v.RecordedAt <= slow.at {
		t.Fatalf("a commit at %v (%v), after one in flight at %d", v, err, slow.at)
	}
	kill(first)
	second := newServerOf(t, uri, Options{})
	if now, err := second.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v), and a commit at %d was acknowledged before", now, err, v.RecordedAt)
	}
}

// What a server has in flight under its lease is not in the document: another one that has
// just come takes no instant at or after it for settled.
func TestLeaseIsNotSettled(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	o := Options{timing: unending}
	first := newServerOf(t, uri, o)
	slow, err := first.clock.begin(ctx, 0, unending.life)
	if err != nil {
		t.Fatal(err)
	}
	v, err := driver.CommitOne(ctx, first, write("a", "1", 0))
	if err != nil {
		t.Fatal(err)
	}
	second := newClock(first, Options{Clock: time.Now, elapsed: first.clock.elapsed, timing: unending})
	if err := second.open(ctx, v.RecordedAt); err != nil {
		t.Fatal(err)
	}
	go second.run()
	settled := make(chan error, 1)
	go func() { settled <- second.settle(ctx, slow.at) }()
	for range 5 {
		if err := second.looks.do(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-settled:
			t.Fatalf("%d is settled (%v), and a commit at it is in flight", slow.at, err)
		default:
		}
	}
	first.clock.end(slow)
	if err := <-settled; err != nil {
		t.Error(err)
	}
	if err := second.leave(ctx); err != nil {
		t.Error(err)
	}
}

// A server comes in, and another goes, while one writes: its reads stay. When it is the
// only one, it asks nobody.
func TestServersComeAndGo(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	first := newServerOf(t, uri, Options{Clock: offBy(maxAhead)})
	for range 3 {
		until(t.Context(), t, first, func(c *clock) bool { return !shares(c) })
		second := newServerOf(t, uri, Options{Clock: offBy(-maxAhead)})
		for _, problem := range observe(t, []*Store{first, second}, 6) {
			t.Error(problem)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		for _, problem := range observe(t, []*Store{first}, 4) {
			t.Error(problem)
		}
	}
}

// The clock of a server is a year ahead for a moment, or a year behind: nobody gets a time or
// an instant that is as far away, then or later.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"the only server": 0, "one of three": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uri, _ := mongotest.NewServer(t).Database(t)
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			const year = 365 * 24 * time.Hour
			var ahead atomic.Int64
			servers := []*Store{newServerOf(t, uri, Options{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, MaxSkew: maxAhead})}
			for range others {
				servers = append(servers, newServerOf(t, uri, Options{}))
			}
			var o observer
			past, near := driver.InstantOf(time.Now().Add(-year/2)), driver.InstantOf(time.Now().Add(year/2))
			for round, jump := range []time.Duration{0, year, 0, -year, 0} {
				ahead.Store(int64(jump))
				for n, s := range servers {
					v, err := commitAgain(ctx, s, write(fmt.Sprint("k", n), fmt.Sprint(n, ".", round), int64(round)))
					if err != nil || v.RecordedAt < past || v.RecordedAt > near {
						t.Fatalf("a commit at %v (%v)", v, err)
					}
					now, err := s.Now(ctx)
					if err != nil || now > near {
						t.Fatalf("Now is %v (%v)", now, err)
					}
					if !o.read(ctx, s) {
						t.Fatal(o.broken)
					}
				}
				if err := servers[0].Settle(ctx, near); driver.CodeOf(err) != driver.CodeInvalid {
					t.Errorf("Settle of an instant in half a year: %v", err)
				}
			}
			for _, problem := range o.verify(ctx, servers) {
				t.Error(problem)
			}
		})
	}
}

// A server that others took for gone goes on with the others, and the instants that it
// hands out are not before theirs.
func TestEvictedServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, name := mongotest.NewServer(t).Behind(t)
	direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
	if err != nil {
		t.Fatal(err)
	}
	behind := newServerOf(t, uri, Options{})
	frozen, release := freeze(proxy, func(c mongotest.Command) bool { return c.Name == "findAndModify" })
	defer release()
	await(ctx, t, frozen)
	beside := newServerOf(t, direct, Options{})
	v, err := commitAgain(ctx, beside, write("a", "1", 0))
	if err != nil {
		t.Fatal(err)
	}
	release()
	if now, err := behind.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v), and a commit at %d was acknowledged before", now, err, v.RecordedAt)
	}
	for _, problem := range observe(t, []*Store{behind, beside}, 6) {
		t.Error(problem)
	}
}

// A database that needs long for each command is slow, and no more than that.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newServerOf(t, uri, Options{})
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !c.Hello() {
			pause(ctx, 2*quick.life)
		}
		return mongotest.Pass()
	})
	defer proxy.Set(nil)
	for n := range int64(2) {
		if _, err := driver.CommitOne(ctx, s, write("a", fmt.Sprint(n), n)); err != nil {
			t.Fatal(err)
		}
		if now, err := s.Now(ctx); err != nil || now == 0 {
			t.Fatal(now, err)
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
	client, _, err := connect(uri, new(dialer)) // as the program does
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

func databaseOf(uri string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(uri, "mongodb://"), "/")
	database, _, _ := strings.Cut(rest, "?")
	return database
}

// poseAsPrimary lets a server pose as the primary of a replica set, with sessions and a time of
// operations that goes on with each command.
func poseAsPrimary(proxy *mongotest.Proxy, answer func(mongotest.Command) mongotest.Answer) {
	var operations atomic.Uint32
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		a := answer(c)
		if a.Passes() {
			return mongotest.Rewrite(func(reply bson.Raw) bson.D {
				at := bson.Timestamp{T: 100, I: operations.Add(1)}
				var d bson.D
				if err := bson.Unmarshal(reply, &d); err != nil {
					return bson.D{{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: err.Error()}}
				}
				if c.Hello() {
					d = append(d, bson.E{Key: "setName", Value: "rs0"}, bson.E{Key: "isWritablePrimary", Value: true}, bson.E{Key: "me", Value: proxy.Addr()},
						bson.E{Key: "hosts", Value: bson.A{proxy.Addr()}}, bson.E{Key: "logicalSessionTimeoutMinutes", Value: int32(30)})
				}
				return append(d, bson.E{Key: "operationTime", Value: at}, bson.E{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: at}}})
			})
		}
		return a
	})
}

// Every read waits until the server has got as far as the last answer said that one had:
// a primary that was just elected does not show less than was acknowledged.
func TestReadsAreCausal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	var mu sync.Mutex
	var last, without int
	seen := make(map[string]bson.Timestamp)
	poseAsPrimary(proxy, func(c mongotest.Command) mongotest.Answer {
		if !strings.HasPrefix(c.Collection(), "things") || c.Name != "find" && c.Name != "aggregate" {
			return mongotest.Pass()
		}
		mu.Lock()
		defer mu.Unlock()
		last++
		var at bson.Timestamp
		var ok bool
		for _, field := range []string{"afterClusterTime", "atClusterTime"} {
			if at.T, at.I, ok = c.Body.Lookup("readConcern", field).TimestampOK(); ok {
				break
			}
		}
		if !ok {
			without++
		}
		seen[c.Name] = at
		return mongotest.Pass()
	})
	s := newServerOf(t, uri, Options{timing: unhurried})
	if !s.progress.kept {
		t.Fatal("the server is not taken for one with sessions")
	}
	if _, err := driver.CommitOne(ctx, s, write("a", "1", 0)); err != nil {
		t.Fatal(err)
	}
	acknowledged := s.progress.operation()
	mu.Lock()
	last, without = 0, 0
	mu.Unlock()
	if _, err := s.Get(ctx, "things", []driver.Ref{{Key: "a", At: driver.Forever}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Query(ctx, &driver.Query{Collection: "things", At: driver.Forever}); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if last == 0 || without > 0 {
		t.Errorf("%d of %d reads wait for nothing", without, last)
	}
	for name, at := range seen {
		if at.Before(*acknowledged) {
			t.Errorf("a %s waits for %v, and a commit was acknowledged at %v", name, at, acknowledged)
		}
	}
}

// checkAll reports what is wrong with a store.
func checkAll(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
}

// A server's update is held up: what others commit meanwhile is acknowledged all the same, and
// whoever reads then waits until nothing before it can appear.
func TestSlowServerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"another server's": false, "the server's own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			var proxy *mongotest.Proxy
			var behind, beside *Store
			o := Options{timing: unending}
			if alone {
				var uri string
				proxy, uri, _ = mongotest.NewServer(t).Behind(t)
				behind = newServerOf(t, uri, o)
				beside = behind
			} else {
				proxy, behind, beside = pair(ctx, t, o)
			}
			held, release := make(chan struct{}), make(chan struct{})
			end := sync.OnceFunc(func() { close(release) })
			defer end()
			var later atomic.Bool
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("update")(c) && !later.Swap(true) {
					close(held)
					<-release
				}
				return mongotest.Pass()
			})
			slow := make(chan error, 1)
			go func() {
				_, err := driver.CommitOne(ctx, behind, write("slow", "slow", 0))
				slow <- err
			}()
			await(ctx, t, held)
			var last driver.Instant
			for n := range 5 {
				v, err := driver.CommitOne(ctx, beside, write(fmt.Sprint("k", n), fmt.Sprint(n), 0))
				if err != nil {
					t.Fatal(err)
				}
				last = v.RecordedAt
			}
			var seen observer
			seen.acknowledged.Store(int64(last))
			read := make(chan bool, 2)
			for _, s := range []*Store{behind, beside} {
				go func() { read <- seen.read(ctx, s) }()
			}
			end()
			if err := <-slow; err != nil {
				t.Error(err)
			}
			<-read
			<-read
			for _, problem := range seen.verify(ctx, []*Store{behind, beside}) {
				t.Error(problem)
			}
		})
	}
}

// An instant is not from before the request, also where the database cannot be read at first.
func TestFirstReadsFail(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{})
	v, err := commitAgain(ctx, beside, write("a", "1", 0))
	if err != nil {
		t.Fatal(err)
	}
	var failures atomic.Int32
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "find" && c.Collection() == metaName && failures.Add(1) <= 4 {
			return mongotest.Reply(mongotest.Failure(189, "PrimarySteppedDown", "there is no primary"))
		}
		return mongotest.Pass()
	})
	if now, err := again(ctx, behind.Now); err != nil || now < v.RecordedAt || failures.Load() < 4 {
		t.Errorf("Now is %d (%v) after %d commands, and a commit at %d was acknowledged before", now, err, failures.Load(), v.RecordedAt)
	}
}
