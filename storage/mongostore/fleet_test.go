package mongostore

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// quickBeat keeps tests short: what they wait for are beats. slowBeat is for those
// of one server whose lease is not to end, however slow the machine.
const (
	quickBeat = 60 * time.Millisecond
	slowBeat  = time.Minute
)

// hangs bounds what would hang otherwise. Nothing takes nearly as long, on any machine.
const hangs = 5 * time.Minute

// again makes a call until it is not told any more that the store cannot do it now:
// on a slow machine a server may be taken for dead, or the database be too slow for
// it, at any time.
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
	return again(ctx, func(ctx context.Context) (*driver.Version, error) { return s.Commit(ctx, w) })
}

func loadAgain(ctx context.Context, s *Store, vs []driver.Version) (driver.LoadResult, error) {
	return again(ctx, func(ctx context.Context) (driver.LoadResult, error) { return s.Load(ctx, vs) })
}

// newFleetServer opens a store as one of several on a database. It can be left
// behind as a process that was killed leaves it. It is patient with the database, and
// where opening takes longer than the options allow, which a slow machine may need,
// they allow more.
func newFleetServer(t *testing.T, uri string, o Options) *Store {
	t.Helper()
	_, rest, _ := strings.Cut(strings.TrimPrefix(uri, "mongodb://"), "/")
	database, _, _ := strings.Cut(rest, "?")
	if o.Collections == nil {
		o.Collections = []driver.Collection{{Name: "things"}, {Name: "thingsToo"}}
	}
	if o.beat == 0 {
		o.beat = quickBeat
	}
	s, err := again(t.Context(), func(ctx context.Context) (*Store, error) {
		client, err := mongo.Connect(options.Client().ApplyURI(uri))
		if err != nil {
			return nil, err
		}
		s, err := open(ctx, client, database, o)
		if err != nil {
			o.Timeout *= 2
			err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx)))
		}
		return s, err
	})
	if err != nil {
		t.Fatal(err)
	}
	impatient(s, hangs)
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// impatient makes a store tell that the database is too slow when it has been for some
// time.
func impatient(s *Store, after time.Duration) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.grace = after
}

// offBy is the system's clock, off by some time.
func offBy(skew time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(skew) }
}

// kill leaves a store as a killed process does: it tells nobody.
func kill(s *Store) {
	s.fleet.stop()
	<-s.fleet.ended
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.unclear = true // so that closing it does not tell either
}

// selfish makes a store use its own clock whatever others do.
func selfish(s *Store) {
	kill(s)
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.mode, s.clock.floor, s.clock.term = alone, driver.Forever, math.MaxInt64
	s.clock.broadcast()
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
var skews = [...]time.Duration{-defaultSkew, 0, defaultSkew}

const defaultSkew = 500 * time.Millisecond

// observeFleet lets servers write and read at the same time, and returns what
// does not hold: a read repeated at the instant that was reported, on any
// server, says something else; a read does not see what was acknowledged
// before it began, by any server; times of a document do not increase.
func observeFleet(t *testing.T, servers []*Store, rounds int) (broken []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	type observation struct {
		at   driver.Instant
		seen string
	}
	var mu sync.Mutex
	var observations []observation
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		broken = append(broken, fmt.Sprintf(format, args...))
	}
	var acknowledged atomic.Int64 // the last time of a commit
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
						v, err := commitAgain(ctx, s, write(fmt.Sprintf("k%d.%d", client%2, d), fmt.Sprintf("%d.%d.%d", n, client, round), expected[d]))
						var conflict *driver.ConflictError
						switch {
						case errors.As(err, &conflict):
							expected[d] = conflict.Actual
						case err != nil:
							say("Commit: %v", err)
							return
						default:
							expected[d] = v.Number
							for last := acknowledged.Load(); last < int64(v.RecordedAt) && !acknowledged.CompareAndSwap(last, int64(v.RecordedAt)); {
								last = acknowledged.Load()
							}
						}
					}
					before := driver.Instant(acknowledged.Load())
					at, err := s.Now(ctx)
					if err == nil && at < before {
						say("Now is %d, and a commit at %d was acknowledged before", at, before)
					}
					var seen string
					if err == nil {
						seen, err = see(ctx, s, at)
					}
					if err != nil {
						say("reading: %v", err)
						return
					}
					mu.Lock()
					observations = append(observations, observation{at, seen})
					mu.Unlock()
				}
			})
		}
	}
	done.Wait()
	for i, o := range observations {
		s := servers[i%len(servers)]
		if err := s.Settle(ctx, o.at); err != nil {
			say("Settle(%d): %v", o.at, err)
			continue
		}
		if seen, err := see(ctx, s, o.at); err != nil || seen != o.seen {
			say("at %d there was\n%s\nand later, on another server,\n%s\n%v", o.at, o.seen, seen, err)
		}
	}
	last := make(map[string]driver.Instant)
	for e, err := range servers[0].Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			say("Log: %v", err)
			break
		}
		v := e.Version
		if v.RecordedAt <= last[v.Key] {
			say("version %d of %s is of %d, the one before it of %d", v.Number, v.Key, v.RecordedAt, last[v.Key])
		}
		last[v.Key] = v.RecordedAt
	}
	t.Logf("%d reads", len(observations))
	return broken
}

func newFleetOf(t *testing.T) []*Store {
	t.Helper()
	uri, _ := mongotest.NewServer(t).Database(t)
	var servers []*Store
	for _, skew := range skews {
		servers = append(servers, newFleetServer(t, uri, Options{Clock: offBy(skew)}))
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
	for i, problem := range observeFleet(t, newFleetOf(t), rounds) {
		if i == 5 {
			t.Fatal("and more")
		}
		t.Error(problem)
	}
}

// Servers that use their own clocks only do not pass the test above.
func TestSelfishServersAreFound(t *testing.T) {
	t.Parallel()
	const tries = 5 // where the machine is slow their clocks are not far apart, compared with that
	for range tries {
		servers := newFleetOf(t)
		for _, s := range servers {
			selfish(s)
		}
		if broken := observeFleet(t, servers, 40); len(broken) > 0 {
			return
		}
	}
	t.Error("nothing was found to be wrong")
}

// A server comes in, and another goes, while one writes: its reads stay.
func TestServersComeAndGo(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	first := newFleetServer(t, uri, Options{Clock: offBy(defaultSkew)})
	for range 3 {
		second := newFleetServer(t, uri, Options{Clock: offBy(-defaultSkew)})
		for _, problem := range observeFleet(t, []*Store{first, second}, 6) {
			t.Error(problem)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		for _, problem := range observeFleet(t, []*Store{first}, 4) {
			t.Error(problem)
		}
	}
}

// What a server handed out before it was killed counts for the next one,
// though its clock is behind.
func TestKilledServer(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := t.Context()
	first := newFleetServer(t, uri, Options{})
	if _, err := commitAgain(ctx, first, write("a", "1", 0)); err != nil {
		t.Fatal(err)
	}
	at, err := first.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	kill(first)
	second := newFleetServer(t, uri, Options{Clock: offBy(-time.Hour)})
	if now, err := second.Now(ctx); err != nil || now < at {
		t.Errorf("Now is %s (%v), and was %s", now, err, at)
	}
	if v, err := commitAgain(ctx, second, write("b", "2", 0)); err != nil || v.RecordedAt <= at {
		t.Errorf("a commit at %v (%v), and %s was read at before", v, err, at)
	}
}

// A server is killed while it commits, at a time that another one read beyond
// only after it was clear that nothing comes of it.
func TestKilledInFlight(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := t.Context()
	first := newFleetServer(t, uri, Options{})
	second := newFleetServer(t, uri, Options{})
	flight, err := again(ctx, func(ctx context.Context) (driver.Instant, error) { return first.clock.takeOff(ctx, 0) })
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now, err := second.Now(ctx)
		// Where the machine is slow the lease may end, and the server be taken for dead.
		if _, lapsed := first.clock.flightLeft(flight); err != nil || now >= flight && lapsed == nil {
			t.Errorf("Now is %d (%v), and a commit at %d is in flight", now, err, flight)
		}
	}
	kill(first)
	v, err := commitAgain(ctx, second, write("a", "1", 0)) // waits for what came before
	if err != nil || v.RecordedAt <= flight {
		t.Fatalf("a commit at %v (%v), after one in flight at %d", v, err, flight)
	}
	if now, err := second.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v) after a commit at %d", now, err, v.RecordedAt)
	}
}

// remove takes a server for dead, and returns what it was called.
func remove(ctx context.Context, t *testing.T, s *Store) (id string) {
	t.Helper()
	for {
		id = lifeOf(s)
		removed, err := s.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: clockID}, {Key: "servers." + id, Value: exists(true)}}, bson.D{
			{Key: "$unset", Value: bson.D{{Key: "servers." + id, Value: ""}}}, {Key: "$inc", Value: bson.D{{Key: "n", Value: int64(-1)}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if removed.ModifiedCount > 0 { // otherwise another server was faster, and it comes in again
			return id
		}
	}
}

// A server that others took for dead takes no times until it has come in again.
func TestRemovedServerComesBack(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := t.Context()
	first := newFleetServer(t, uri, Options{Clock: offBy(-defaultSkew)})
	second := newFleetServer(t, uri, Options{Clock: offBy(defaultSkew)})
	remove(ctx, t, first)
	for _, problem := range observeFleet(t, []*Store{first, second}, 10) {
		t.Error(problem)
	}
}

// A server that does not know yet that others took it for dead reads at no
// instant at which they went on without it.
func TestNowOfRemovedServer(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	first := newFleetServer(t, uri, Options{})
	second := newFleetServer(t, uri, Options{})
	until(ctx, t, first, func(c *clock) bool { return c.mode == shared })
	kill(first) // as where its exchange hangs
	v, err := commitAgain(ctx, second, write("a", "1", 0))
	if err == nil {
		gone(ctx, t, second, lifeOf(first))
		v, err = commitAgain(ctx, second, write("a", "2", 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	short, end := context.WithTimeout(ctx, 5*quickBeat)
	defer end()
	if now, err := first.Now(short); err == nil && now < v.RecordedAt {
		t.Errorf("Now is %d, and a commit at %d was acknowledged before", now, v.RecordedAt)
	} else if err != nil && driver.CodeOf(err) != driver.CodeUnavailable {
		t.Error(err)
	}
}

// until waits until a server's clock is as wanted.
func until(ctx context.Context, t *testing.T, s *Store, wanted func(*clock) bool) {
	t.Helper()
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	for !wanted(s.clock) {
		if err := s.clock.await(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A clock that goes wrong while the server runs: it says so, and writes
// nothing until it is right again.
func TestClockDrifts(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var skew atomic.Int64
	s := newFleetServer(t, uri, Options{
		Clock:   func() time.Time { return time.Now().Add(time.Duration(skew.Load())) },
		MaxSkew: defaultSkew,
	})
	until := func(wanted func(error) bool) error {
		for {
			if err := s.Ping(ctx); wanted(err) || ctx.Err() != nil {
				return err
			}
		}
	}
	if err := s.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	skew.Store(int64(-time.Hour))
	if err := until(func(err error) bool { return err != nil }); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "clocks are too far apart") {
		t.Errorf("Ping with a clock of an hour ago: %v", err)
	}
	if _, err := s.Commit(ctx, write("a", "1", 0)); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "clocks are too far apart") {
		t.Errorf("Commit with a clock of an hour ago: %v", err)
	}
	skew.Store(0)
	if err := until(func(err error) bool { return err == nil }); err != nil {
		t.Errorf("Ping with a clock that is right again: %v", err)
	}
	if _, err := commitAgain(ctx, s, write("a", "2", 0)); err != nil {
		t.Errorf("Commit with a clock that is right again: %v", err)
	}
}
