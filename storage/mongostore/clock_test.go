package mongostore

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// skews are the clocks of three servers on one database.
var skews = [...]time.Duration{-maxAhead, 0, maxAhead}

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
			selfish(t.Context(), s)
		}
		if broken := observe(t, servers, 40); len(broken) > 0 {
			return
		}
	}
	t.Error("nothing was found to be wrong")
}

// selfish makes a store use its own clock whatever others do.
func selfish(ctx context.Context, s *Store) {
	kill(s)
	c := s.clock
	_ = c.edits.do(ctx) // it fails; after it none is under way that would end the lease below
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = &clockState{N: math.MaxInt64, Lease: c.id}
	c.lease = clockEntry{From: 1 << 60, Since: bson.NewDateTimeFromTime(time.Now().Add(time.Hour)), Ms: msOf(time.Hour), name: c.id, begun: c.elapsed()}
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
			ctx := bounded(t)
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
// what it may have made is not after what was read meanwhile. Who only reads is not held
// back for ever either.
func TestKilledInFlight(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := bounded(t)
	first := newServerOf(t, uri, Options{})
	second := newServerOf(t, uri, Options{})
	until(ctx, t, first, shares)
	flight, err := first.clock.begin(ctx, 0, quick.life)
	if err != nil {
		t.Fatal(err)
	}
	kill(first)
	now, err := second.Now(ctx)
	if err != nil || now >= flight.at {
		t.Errorf("Now is %d (%v), and a commit at %d is in flight", now, err, flight.at)
	}
	for now < flight.at {
		if now, err = second.Now(ctx); err != nil {
			t.Fatal(err)
		}
	}
	v, err := commitAgain(ctx, second, write("a", "1", 0))
	if err != nil || v.RecordedAt <= flight.at {
		t.Fatalf("a commit at %v (%v), after one in flight at %d", v, err, flight.at)
	}
	if now, err := second.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v) after a commit at %d", now, err, v.RecordedAt)
	}
}

// A server that was killed does not count for ever as one that shares the clock: the one that is
// left takes a lease, also while it writes without a pause.
func TestKilledServerIsForgotten(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := bounded(t)
	first := newServerOf(t, uri, Options{})
	second := newServerOf(t, uri, Options{})
	until(ctx, t, first, shares)
	if _, err := commitAgain(ctx, first, write("a", "1", 0)); err != nil {
		t.Fatal(err)
	}
	kill(first)
	flight, err := second.clock.begin(ctx, 0, quick.life)
	if err != nil {
		t.Fatal(err)
	}
	defer second.clock.end(flight)
	until(ctx, t, second, (*clock).leased)
}

// The reply to taking the lease is lost: the server finds its own lease, and does not wait until
// that has ended.
func TestLostLease(t *testing.T) {
	t.Parallel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	ctx := bounded(t)
	var lost atomic.Bool
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if _, takes := c.Body.Lookup("update", "$set", "lease").StringValueOK(); takes && !lost.Swap(true) {
			return mongotest.CutAfter()
		}
		return mongotest.Pass()
	})
	s := newServerOf(t, uri, Options{timing: unhurried})
	if now, err := s.Now(ctx); err != nil || !lost.Load() {
		t.Errorf("Now is %d (%v), lost %t", now, err, lost.Load())
	}
	if _, err := commitAgain(ctx, s, write("a", "1", 0)); err != nil {
		t.Error(err)
	}
}

// A large write gets its time while the lease is renewed for small ones: nobody evicts the lease
// before the database would refuse the write.
func TestRenewalCoversLargeWrites(t *testing.T) {
	t.Parallel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	ctx := bounded(t)
	s := newServerOf(t, uri, Options{timing: unending})
	const long = 10 * time.Minute
	first, err := s.clock.begin(ctx, 0, long) // the lease allows as much
	if err != nil {
		t.Fatal(err)
	}
	s.clock.end(first)
	frozen, release := freeze(proxy, func(c mongotest.Command) bool { return c.Name == "findAndModify" })
	defer release()
	await(ctx, t, frozen)
	flights := make(chan *flight, 1)
	go func() {
		f, err := s.clock.begin(ctx, 0, long)
		if err != nil {
			t.Error(err)
		}
		flights <- f
	}()
	select {
	case f := <-flights:
		flights <- f
	case <-time.After(10 * unending.renew): // it waits for the renewal, as it should
	}
	release()
	f := <-flights
	s.clock.mu.Lock()
	e := s.clock.state.Flights[f.entry]
	s.clock.mu.Unlock()
	if end := instantOf(f.until) + microseconds(f.run); end > instantOf(e.Since)+driver.Instant(1000*e.Ms) {
		t.Errorf("a write is carried out until %s, and its entry is of %s for %d ms", end, instantOf(e.Since), e.Ms)
	}
	s.clock.end(f)
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
	ctx := bounded(t)
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

// One of two servers acknowledges a commit while one of the other is in flight before it, and
// leaves. The other one takes a lease, and hands out no instant before what was acknowledged.
func TestLeaseAfterAcknowledgement(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := bounded(t)
	first := newServerOf(t, uri, Options{timing: unending})
	second := newServerOf(t, uri, Options{timing: unending})
	for _, s := range []*Store{first, second} {
		until(ctx, t, s, shares)
	}
	slow, err := first.clock.begin(ctx, 0, unending.life)
	if err != nil {
		t.Fatal(err)
	}
	v, err := commitAgain(ctx, second, write("a", "1", 0))
	if err != nil || v.RecordedAt <= slow.at {
		t.Fatalf("a commit at %v (%v), after one in flight at %d", v, err, slow.at)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, first, (*clock).leased)
	soon, cancel := context.WithTimeout(ctx, ackWait) // it waits for the one in flight
	defer cancel()
	if now, err := first.Now(soon); err == nil && now < v.RecordedAt {
		t.Errorf("Now is %d, and a commit at %d was acknowledged before", now, v.RecordedAt)
	}
	first.clock.end(slow)
	if now, err := first.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v), and a commit at %d was acknowledged before", now, err, v.RecordedAt)
	}
}

// A server with a lease acknowledges a commit, and is killed. An entry that it made before the
// lease lasts longer: until that has ended, nobody hands out an instant before the commit.
func TestKilledWithLongEntry(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := bounded(t)
	first := newServerOf(t, uri, Options{})
	second := newServerOf(t, uri, Options{})
	until(ctx, t, first, shares)
	slow, err := first.clock.begin(ctx, 0, 4*quick.life)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, first, (*clock).leased)
	v, err := commitAgain(ctx, first, write("a", "1", 0))
	if err != nil || v.RecordedAt <= slow.at {
		t.Fatalf("a commit at %v (%v), after one in flight at %d", v, err, slow.at)
	}
	kill(first)
	// As if the lease had been for a short write.
	first.clock.mu.Lock()
	lease := first.clock.lease.name
	first.clock.mu.Unlock()
	if _, err := first.meta.UpdateByID(ctx, clockID, bson.D{{Key: "$set", Value: bson.D{{Key: "flights." + lease + ".ms", Value: int64(1)}}}}); err != nil {
		t.Fatal(err)
	}
	third := newServerOf(t, uri, Options{})
	if now, err := third.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v), and a commit at %d was acknowledged before", now, err, v.RecordedAt)
	}
}

// A server began to end its lease, got no answer, and finds that the other one has left: it ends
// the lease all the same, and takes another.
func TestLeaseEndsWhenOtherHasLeft(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := bounded(t)
	s := newServerOf(t, uri, Options{})
	until(ctx, t, s, (*clock).leased)
	s.clock.mu.Lock()
	ended := s.clock.state.Lease
	s.clock.lease = clockEntry{}
	s.clock.mu.Unlock()
	soon, cancel := context.WithTimeout(ctx, 20*quick.life)
	defer cancel()
	until(soon, t, s, func(c *clock) bool { return c.leased() && c.state.Lease != ended })
}

// What a server has in flight under its lease is not in the document: another one that has
// just come takes no instant at or after it for settled.
func TestLeaseIsNotSettled(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx := bounded(t)
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
	// The lease is renewed meanwhile, so that its entry is of a later time.
	from := func(c *clock) driver.Instant { return c.state.Flights[c.state.Lease].From }
	until(ctx, t, first, func(c *clock) bool { return from(c) > v.RecordedAt })
	second := newClock(first, Options{Clock: time.Now, elapsed: first.clock.elapsed, timing: unending})
	if err := second.open(ctx, v.RecordedAt); err != nil {
		t.Fatal(err)
	}
	go second.run()
	settled := make(chan error, 1)
	go func() { settled <- second.settle(ctx, slow.at) }()
	for ended := 0; ended < 5; { // how often it was looked since the lease has ended
		if err := second.looks.do(ctx); err != nil {
			t.Fatal(err)
		}
		second.mu.Lock()
		if second.state.Lease == "" {
			ended++
		}
		second.mu.Unlock()
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
	second.leave(ctx)
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
			ctx := bounded(t)
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
	ctx := bounded(t)
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
	ctx := bounded(t)
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

// A server's update is held up: what others commit meanwhile is acknowledged all the same, and
// whoever reads then waits until nothing before it can appear.
func TestSlowServerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"another server's": false, "the server's own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
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
	ctx := bounded(t)
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
