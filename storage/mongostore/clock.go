package mongostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// clock hands out the times of commits and the instants to read at, such that nothing
// commits at or before an instant that was handed out, by any server on the database,
// whichever process or machine was stopped, and for however long. The servers agree by
// one document, clockState (see docs/mongodb.md, "Clocks"):
//
//   - A commit is registered in an entry before it is sent, at a time after last. The
//     database refuses it later than entry.Ms after entry.Since, by its own clock.
//   - It is acknowledged when nothing is in flight before it, or acked says that it was.
//   - The instant to read at is before the first entry, and not before acked.
//   - The only server has a lease: an entry that it renews, under which it takes times and
//     instants from memory. It ends the lease when it finds another one in Servers.
//
// Local clocks are followed within a bound of the database's, and decide nothing else but
// when to ask it.
type clock struct {
	meta     *mongo.Collection
	id       string // of this server; the names of its entries begin with it
	alive    context.Context
	stop     context.CancelFunc
	ended    chan struct{}
	wallTime func() time.Time
	elapsed  func() time.Duration // never goes back
	timing   timing
	maxSkew  time.Duration // how far times may be behind the database's clock; 0: as far as the local clock
	causal   func(context.Context) (context.Context, func())
	edits    rounds // of edit
	looks    rounds // of read
	clears   rounds // of clear

	mu           sync.Mutex
	flightsEnded chan struct{}  // closed, and replaced, when flights have ended
	last         driver.Instant // the greatest instant handed out here, or known to be; the document's last is raised to it
	acked        driver.Instant // the last commit that was acknowledged while others were in flight before it
	flights      []*flight      // of this server
	lease        grant          // the last that this server had
	ending       string         // the name of one that is being ended, or was

	state  *clockState    // the document, as it was read last, without this server in Servers
	stable driver.Instant // no commit gets a time at or before it any more
	now    driver.Instant // the database's clock
	heard  time.Duration  // when it said so, by elapsed
	lead   driver.Instant // how far times are to be after those of others, which are ahead
	renew  bool           // the next edit is to be made, whether or not anything has changed
	failed error          // of the last edit
	took   time.Duration  // by the last change, at least
	left   bool           // this server has left
	// cleared are entries, with their time, of which no transaction can be committed any
	// more; nil where there are no transactions.
	cleared map[string]bson.DateTime
}

// life is how long the database may run what is sent under an entry.
func (e clockEntry) life() time.Duration { return time.Duration(e.Ms) * time.Millisecond * 2 / 5 }

// gone is the time of the database's clock from which on nothing of an entry is carried out, by any member.
func (c *clock) gone(e clockEntry) driver.Instant {
	return instantOf(e.Since) + driver.Instant(1000*e.Ms) + microseconds(c.timing.skew)
}

// top is the greatest time that a commit may get under an entry.
func (c *clock) top(e clockEntry) driver.Instant { return max(c.gone(e), e.From) + 1000 }

// flight is a commit, or a part of a load: waiting for its time, or on its way.
type flight struct {
	after driver.Instant // the time is greater
	at    driver.Instant // the time; Forever while it waits
	until bson.DateTime  // the database's clock, from which on it refuses what the flight sends
	run   time.Duration  // how long that may take there
	entry string
	note  any // the _id of the note of its transaction; nil: none
}

// inTime is the condition that the database's clock is not past the life of a flight.
func (f *flight) inTime() bson.E {
	return bson.E{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$$NOW", f.until}}}}
}

// grant is an entry of this server.
type grant struct {
	clockEntry
	name  string
	begun time.Duration // before the change that made or renewed it
}

// timing is what the protocol rests on. Only tests choose another one.
type timing struct {
	life  time.Duration // how long the database may run a small write
	skew  time.Duration // how far the clocks of the members of a replica set are apart at most
	renew time.Duration // between two edits of a server that has nothing to do
}

var usual = timing{life: time.Second, skew: maxAhead, renew: 500 * time.Millisecond}

const (
	// maxAhead is how far an instant may be ahead of the database's clock, but for the one that
	// follows the last.
	maxAhead = 500 * time.Millisecond
	// longestLife bounds the life of a write, unless that of the first attempt is a large
	// part of it, and how long one command on the clock document may take.
	longestLife = 10 * time.Second
	// ackWait is how long a commit waits for others in flight before it, so that readers need not.
	ackWait = 50 * time.Millisecond
	// The pauses between two rounds.
	firstWait = time.Millisecond
	lastWait  = 50 * time.Millisecond
)

var (
	// errEmptied: the document is not there any more.
	errEmptied = driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran; restore it, or start asof again for an empty store")
	// errNotYet: another server has to do something first.
	errNotYet = errors.New("the database, or another server, has not answered yet")
)

// sendable is for how long after an entry began writes with a life may be sent, and msOf
// for how many milliseconds something of them may be carried out.
func sendable(life time.Duration) time.Duration { return life * 3 / 2 }

func msOf(life time.Duration) int64 { return (sendable(life) + life).Milliseconds() + 1 }

func instantOf(t bson.DateTime) driver.Instant    { return driver.InstantOf(t.Time()) }
func microseconds(d time.Duration) driver.Instant { return driver.Instant(d.Microseconds()) }

func newClock(s *Store, o Options) *clock {
	c := &clock{
		meta: s.meta, id: rand.Text(), wallTime: o.Clock, elapsed: o.elapsed, timing: o.timing, maxSkew: o.MaxSkew, causal: s.causal,
		ended: make(chan struct{}), flightsEnded: make(chan struct{}), state: new(clockState),
	}
	c.alive, c.stop = context.WithCancel(context.WithoutCancel(s.life))
	if c.timing == (timing{}) {
		c.timing = usual
	}
	if s.transactions() {
		c.cleared = make(map[string]bson.DateTime)
	}
	c.edits.run = func() error { return c.edit(c.alive) }
	c.clears.run = func() error { return c.clear(c.alive) }
	c.looks.run = func() error {
		c.mu.Lock()
		leased, own := c.leased(), c.owns(c.state.Lease)
		c.mu.Unlock()
		switch {
		case !own:
			return c.read(c.alive)
		case !leased:
			return c.edits.do(c.alive)
		}
		return nil // nobody else changes anything
	}
	return c
}

// The caller of the following seven holds the lock.

// databaseNow is about what the database's clock says now, or less.
func (c *clock) databaseNow() driver.Instant { return c.now + microseconds(c.elapsed()-c.heard) }

// present is the latest instant that is not in the future: what the local clock says,
// unless that is too far from the database's.
func (c *clock) present() driver.Instant {
	at, now := driver.InstantOf(c.wallTime()), c.databaseNow()
	if c.maxSkew > 0 {
		at = max(at, now-microseconds(c.maxSkew))
	}
	return max(c.last, min(at, now+microseconds(maxAhead)))
}

// commandTime is how long a change of the document may take: after a slow one, twice as long.
func (c *clock) commandTime() time.Duration {
	return max(c.timing.life, min(2*c.took, longestLife))
}

// owns reports whether an entry is this server's; "" is none's.
func (c *clock) owns(entry string) bool { return strings.HasPrefix(entry, c.id) }

// leased reports whether this server has a lease for sure.
func (c *clock) leased() bool {
	lease := c.state.Lease
	return lease != "" && c.lease.name == lease && c.ending != lease && c.elapsed()-c.lease.begun < sendable(c.lease.life())
}

// settled reports whether no commit with a time at or before an instant can still appear.
func (c *clock) settled(at driver.Instant) bool {
	if c.owns(c.state.Lease) {
		return at <= c.last && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.at <= at })
	}
	return at <= c.stable
}

// idle returns the entries of this server in which nothing is in flight any more, but for the lease.
func (c *clock) idle() (entries []string) {
	for entry := range c.state.Flights {
		ends := c.owns(entry) && (entry != c.state.Lease || entry == c.ending)
		if ends && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.entry == entry }) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// serve gives times, from least on, to the waiting flights that a grant allows.
func (c *clock) serve(g grant, least driver.Instant) {
	for _, f := range c.flights {
		if at := max(least, f.after+1); f.at == driver.Forever && at <= c.top(g.clockEntry) && f.run <= g.life() {
			f.at, f.until, f.entry = at, g.Since+bson.DateTime(sendable(f.run).Milliseconds()), g.name
			c.last, least = max(c.last, at), at+1
		}
	}
}

// until makes rounds until a condition holds, which is called with the lock held and the number
// of rounds that did not fail. It fails when the context ends, or a round fails for a reason that
// another attempt meets again.
func (c *clock) until(ctx context.Context, r *rounds, condition func(rounds int) bool) error {
	var reason error
	made := 0
	for n, wait := 0, firstWait; ; n, wait = n+1, min(2*wait, lastWait) {
		c.mu.Lock()
		flightsEnded, failed, holds := c.flightsEnded, c.failed, condition(made)
		c.mu.Unlock()
		if holds {
			return nil
		}
		if n > 0 {
			select {
			case <-time.After(wait):
			case <-flightsEnded:
			case <-ctx.Done():
			}
		}
		err := r.do(ctx)
		switch {
		case ctx.Err() != nil:
			return driver.Errorf(driver.CodeUnavailable, "%v: the time was up: %w", wrap(cmp.Or(reason, failed, errNotYet), "agreeing with other servers on the time"), ctx.Err())
		case err != nil && !passes(err) && !errors.Is(err, errNotYet):
			return wrap(err, "agreeing with other servers on the time")
		case err == nil:
			made++
		}
		reason = err
	}
}

// begin returns a flight at a time greater than after and all that were handed out
// before, which the database may run for life. The caller calls end when nothing of it can
// be carried out any more.
func (c *clock) begin(ctx context.Context, after driver.Instant, life time.Duration) (*flight, error) {
	f := &flight{after: after, at: driver.Forever, run: life}
	c.mu.Lock()
	c.flights = append(c.flights, f)
	c.mu.Unlock()
	err := c.until(ctx, &c.edits, func(int) bool {
		if c.leased() {
			c.serve(c.lease, max(c.present(), c.last+1))
		}
		return f.at != driver.Forever
	})
	if err != nil {
		c.end(f) // nothing of it is sent, even if it has got a time by now
		return nil, err
	}
	return f, nil
}

// end removes flights of which nothing can be carried out any more.
func (c *clock) end(flights ...*flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flights = slices.DeleteFunc(c.flights, func(f *flight) bool { return slices.Contains(flights, f) })
	close(c.flightsEnded)
	c.flightsEnded = make(chan struct{})
	if len(c.idle()) > 0 {
		c.edits.ask() // others wait for it
	}
}

// awaitEnd waits until the database's own clock says that nothing of some flights can be
// carried out any more.
func (c *clock) awaitEnd(ctx context.Context, flights []*flight) error {
	end := driver.Instant(0)
	for _, f := range flights {
		end = max(end, instantOf(f.until)+microseconds(f.run+c.timing.skew))
	}
	c.mu.Lock()
	left := time.Duration(end-c.databaseNow()) * time.Microsecond
	c.mu.Unlock()
	pause(ctx, left)
	return c.until(ctx, &c.edits, func(int) bool {
		c.renew = true
		return c.now > end
	})
}

// acknowledge returns when a commit that has ended may be acknowledged: when every instant
// that any server hands out from then on is at its time or later. Where a commit in flight
// before it does not end within ackWait, readers wait for that one instead.
func (c *clock) acknowledge(ctx context.Context, at driver.Instant) error {
	soon, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	// First others get to know that it is not in flight any more.
	_ = c.until(soon, &c.edits, func(rounds int) bool { return rounds > 0 || c.leased() || c.settled(at) })
	err := c.until(soon, &c.looks, func(int) bool { return c.settled(at) })
	if err == nil || soon.Err() == nil || ctx.Err() != nil {
		return err
	}
	return c.until(ctx, &c.edits, func(int) bool {
		c.acked = max(c.acked, at)
		return c.leased() || c.state.Acked >= at && c.state.Lease == "" || c.settled(at) // one with a lease may not know acked yet
	})
}

// instant returns one to read at: not before any acknowledged commit, and such that none
// before it is in flight.
func (c *clock) instant(ctx context.Context) (at driver.Instant, err error) {
	err = c.until(ctx, &c.looks, func(rounds int) bool {
		if !c.leased() {
			at = c.stable
			return rounds > 0 && c.state.Lease == "" && at >= c.state.Acked
		}
		at = min(c.present(), c.top(c.lease.clockEntry))
		for _, f := range c.flights {
			at = min(at, f.at-1)
		}
		at = max(at, c.acked, c.state.Acked)
		c.last = max(c.last, at)
		return c.settled(at)
	})
	return at, err
}

// latest is the latest instant that is not in the future, also where another server's clock
// is ahead of this one's.
func (c *clock) latest(ctx context.Context) (at driver.Instant, err error) {
	err = c.until(ctx, &c.looks, func(rounds int) bool {
		at = c.present()
		return rounds > 0 || c.leased()
	})
	return at, err
}

// settle makes an instant one that later commits are after, and waits until none at or
// before it can still appear. It is CodeInvalid where the instant is in the future.
func (c *clock) settle(ctx context.Context, at driver.Instant) error {
	c.mu.Lock()
	present := c.present()
	c.mu.Unlock()
	var err error
	if at > present {
		present, err = c.latest(ctx)
	}
	switch {
	case err != nil:
		return err
	case at > present:
		return invalidf("%s is in the future; the store's clock says %s", at, present)
	}
	if err := c.until(ctx, &c.edits, func(int) bool {
		c.last, c.renew = max(c.last, at), true
		return c.leased() && at <= c.top(c.lease.clockEntry) || c.state.Lease == "" && at <= c.state.Last
	}); err != nil {
		return err
	}
	return c.until(ctx, &c.looks, func(int) bool { return c.settled(at) })
}

// lifeOf is how long the database may run a write of a size in bytes; each further attempt
// gets twice as long, so that a slow database can complete it.
func (c *clock) lifeOf(bytes, attempt int) time.Duration {
	life := c.timing.life + time.Duration(max(0, bytes-smallWrite))*time.Second/lifeBytes
	return min(life<<attempt, max(longestLife, 4*life))
}

const (
	// lifeBytes is the least assumed speed of large writes, in bytes per second.
	lifeBytes  = 1 << 20
	smallWrite = 64 << 10
)

// check returns why the last change of the document failed; nil under a lease, which needs none
// for a while.
func (c *clock) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil || c.leased() {
		return nil
	}
	return wrap(c.failed, "agreeing with other servers on the time")
}
