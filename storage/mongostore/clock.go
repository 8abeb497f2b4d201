package mongostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// clock hands out the times of commits and the instants to read at, such that
// nothing commits at or before an instant that was handed out, by any server on
// the database, whichever process or machine was stopped, wherever and for however
// long. The database keeps that promise:
//
//   - A commit takes its time by a change of the clock document (clockdoc.go) that
//     says from when on times are in flight. The database notes in it, by its own
//     clock, since when.
//   - Every update that makes versions current is refused by the database unless its
//     clock ($$NOW) is less than the flight's life past that (flight.until), and may
//     run there only as long again (maxTimeMS).
//   - The instant to read at is the one before the first in flight, else the last
//     time taken. It is never before a commit that was acknowledged: commits wait a
//     little for others in flight before them, and readers wait for the rest.
//   - Whose flight does not end, since its server is gone, is evicted by the others,
//     once the database's clock says that nothing of it can be carried out any more.
//
// The only server on a database takes a hold of the clock instead, which is a flight
// of all times from then on: it is renewed twice a second, and lets that server
// take times and instants from its own clock. Another server asks for the end of it.
//
// Local clocks say only how late it is. No instant is handed out that is further
// ahead of the database's clock than maxAhead, except the one after the last.
type clock struct {
	meta     *mongo.Collection
	id       string // of this server
	alive    context.Context
	stop     context.CancelFunc
	wallTime func() time.Time
	elapsed  func() time.Duration // never goes back
	timing   timing
	maxSkew  time.Duration // 0: clocks are not compared
	logger   *slog.Logger
	causal   func(context.Context) (context.Context, func())

	kicked chan struct{}
	ended  chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when anything below changes
	mode    clockMode
	last    driver.Instant // the greatest instant handed out here, or known to be
	flights []*flight      // of this server, by their times
	waiting []*ticket      // for their times
	wanted  driver.Instant // to be handed out
	acked   driver.Instant // the last commit that was acknowledged while others were in flight before it

	// The hold: it is this server's until life past since, by the database's clock.
	hold  string
	floor driver.Instant // up to it instants may be handed out
	since bson.DateTime
	begun moment // when its last renewal began
	life  time.Duration

	// What the clock document says, as far as it is known here.
	mark       driver.Instant            // later commits of any server get greater times
	stable     driver.Instant            // no commit gets a time at or before it
	ackStored  driver.Instant            // acked, of all servers
	registered map[string]driver.Instant // the flights of this server, and from when on they are
	seen       map[string]clockEntry     // the flights and holds of all
	now        driver.Instant            // the database's clock
	heard      moment                    // and when that was, at the latest

	left    bool // others are not told of its end
	poked   bool // a change is to be made, whether or not there is something to tell
	changes int  // attempts to change the document
	failed  error
	away    time.Duration // since when they failed
	apart   error         // how far the clocks are apart, where that is too much

	looking bool
	next    *look

	// Only who changes the document uses these.
	took    time.Duration // by the last attempt, at least
	entries int           // that were named
}

func newClock(s *Store, o Options) *clock {
	c := &clock{
		meta: s.meta, id: rand.Text(), wallTime: o.Clock, elapsed: o.elapsed, timing: o.timing, maxSkew: o.MaxSkew,
		logger: s.logger, causal: s.causal, kicked: make(chan struct{}, 1), ended: make(chan struct{}), changed: make(chan struct{}),
		registered: make(map[string]driver.Instant),
	}
	c.alive, c.stop = context.WithCancel(s.life)
	if c.timing == (timing{}) {
		c.timing = usual
	}
	return c
}

type clockMode int

const (
	modeShared clockMode = iota // times and instants come from the document
	modeHeld                    // from memory
	modeEnding                  // from neither: the hold is being given up
)

// timing is what the protocol rests on. Only tests choose another one.
type timing struct {
	life  time.Duration // a flight's: so long after it began the database takes a small write
	hold  time.Duration // the same of a hold, after it was renewed
	skew  time.Duration // how far the clocks of the members of a replica set are apart at most
	renew time.Duration // between two renewals
	ahead time.Duration // for how long ahead a hold is taken
}

var usual = timing{
	life: time.Second, hold: 1500 * time.Millisecond, skew: maxAhead, renew: 500 * time.Millisecond, ahead: 2 * time.Second,
}

const (
	// maxAhead is how far an instant may be ahead of the database's clock.
	maxAhead = 500 * time.Millisecond
	// longestLife bounds the life of a flight, unless that of the first attempt is a large
	// part of it, and how long one command on the clock document may take.
	longestLife = 10 * time.Second
	// lifeBytes are written in a second at least, of writes that are not small.
	lifeBytes  = 1 << 20
	smallWrite = 64 << 10
	// ackWait is how long a commit that is made waits for others in flight before it, so that
	// readers need not.
	ackWait = 50 * time.Millisecond
	// awayAfter is how long a database must have been out of reach before nobody waits
	// for it any longer: another primary is elected in less (12 s by default).
	awayAfter = 15 * time.Second
)

// flight is a commit, or a part of a load, on its way.
type flight struct {
	at    driver.Instant
	until bson.DateTime // the database's clock, from which on it refuses what the flight sends
	run   time.Duration // how long that may take there
	entry string        // of the clock document; empty: it flies under the hold
}

// ticket is a commit that waits for its time.
type ticket struct {
	after  driver.Instant
	life   time.Duration
	flight *flight // once it has one
	gone   bool    // nobody waits for it
}

// moment is a point in time by both clocks: the first stands still while a machine
// is suspended, and the second may be set.
type moment struct {
	elapsed time.Duration
	wall    time.Time
}

func (c *clock) moment() moment {
	return moment{c.elapsed(), c.wallTime().Round(0)} // without what else Go measures by
}

// past is how long ago a moment was, by the clock that moved further.
func (c *clock) past(m moment) time.Duration {
	now := c.moment()
	return max(now.elapsed-m.elapsed, now.wall.Sub(m.wall))
}

// lifeOf is how long a flight lives that sends so many bytes; each further attempt
// lives twice as long, so that a slow database gets it done.
func (c *clock) lifeOf(bytes, attempt int) time.Duration {
	life := c.timing.life + time.Duration(max(0, bytes-smallWrite))*time.Second/lifeBytes
	return min(life<<attempt, max(longestLife, 4*life))
}

// broadcast wakes everyone who waits. The caller holds the lock.
func (c *clock) broadcast() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *clock) kick() {
	select {
	case c.kicked <- struct{}{}:
	default: // it is kicked already
	}
}

// await waits for a change, and fails when the context ends, or where an attempt to
// change the document failed, after those that there were when the caller began, for a
// reason that stays. The caller holds the lock, and has it again afterwards.
func (c *clock) await(ctx context.Context, after int) error {
	if c.changes > after && staysRefused(c.failed) {
		return c.failed
	}
	if err := c.gone(); err != nil {
		return err
	}
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	reason := c.failed
	c.mu.Unlock()
	if reason == nil {
		return driver.Errorf(driver.CodeUnavailable, "waiting for the database's clock: the time was up: %w", ctx.Err())
	}
	return driver.Errorf(driver.CodeUnavailable, "waiting for the database's clock (%v): the time was up: %w", reason, ctx.Err())
}

// present is the latest instant that is not in the future: what this machine's clock
// says, unless that is too far ahead of the database's. The caller holds the lock.
func (c *clock) present() driver.Instant {
	return max(c.last, min(driver.InstantOf(c.wallTime()), c.bound()))
}

// bound is what no instant may be after but the one that follows the last. The caller
// holds the lock.
func (c *clock) bound() driver.Instant {
	return c.now + driver.Instant((c.elapsed() - c.heard.elapsed + maxAhead).Microseconds())
}

// latest is the latest instant that is not in the future, also where another server's clock
// is ahead of this one's.
func (c *clock) latest(ctx context.Context) (driver.Instant, error) {
	c.mu.Lock()
	shares := c.mode == modeShared
	c.mu.Unlock()
	if shares {
		if _, err := c.look(ctx); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.present(), nil
}

// leased reports whether the hold is this server's for sure. The caller holds the lock.
func (c *clock) leased() bool { return c.mode == modeHeld && c.past(c.begun) < c.life }

// takeOff returns a flight at a time greater than after and all that were handed out
// before, which lives as long as is said at least. The caller ends it by land, when it
// is certain that nothing of it can still be carried out.
func (c *clock) takeOff(ctx context.Context, after driver.Instant, life time.Duration) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.changes
	var t *ticket
	for {
		switch {
		case t != nil && t.flight != nil:
			return t.flight, nil
		case t != nil:
		case c.leased() && life <= c.timing.life:
			at := max(c.present(), c.last+1, after+1)
			if at <= c.floor {
				f := &flight{at: at, until: c.since + bson.DateTime(c.life.Milliseconds()), run: life}
				c.depart(f)
				return f, nil
			}
			c.want(at)
		case c.mode == modeHeld && life <= c.timing.life:
			c.kick()
		default:
			t = &ticket{after: after, life: life}
			c.waiting = append(c.waiting, t)
			c.kick()
		}
		if err := c.await(ctx, began); err != nil {
			if t != nil && t.flight != nil {
				return t.flight, nil
			}
			if t != nil {
				t.gone = true
			}
			return nil, err
		}
	}
}

// want asks for an instant to come within reach. The caller holds the lock.
func (c *clock) want(at driver.Instant) {
	c.wanted = max(c.wanted, at)
	c.kick()
}

// depart notes a flight. The caller holds the lock.
func (c *clock) depart(f *flight) {
	c.last = max(c.last, f.at)
	c.flights = append(c.flights, f)
}

// land ends flights of which nothing can be carried out any more.
func (c *clock) land(flights ...*flight) {
	if len(flights) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flights = slices.DeleteFunc(c.flights, func(f *flight) bool { return slices.Contains(flights, f) })
	if c.mode != modeHeld || flights[0].entry != "" {
		c.kick() // others wait for it
	}
	c.broadcast()
}

// awaitEnd waits until nothing of some flights can be carried out any more, by the
// database's own clock.
func (c *clock) awaitEnd(ctx context.Context, flights []*flight) error {
	end := driver.Instant(0)
	for _, f := range flights {
		end = max(end, instantOf(f.until)+driver.Instant((f.run+c.timing.skew).Microseconds()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.now <= end {
		left := time.Duration(end-c.now)*time.Microsecond - (c.elapsed() - c.heard.elapsed)
		began := c.changes
		c.mu.Unlock()
		pause(ctx, left+time.Millisecond)
		c.mu.Lock()
		c.poke()
		for c.changes == began || c.failed != nil {
			if err := c.await(ctx, began); err != nil {
				return err
			}
		}
	}
	return nil
}

func instantOf(t bson.DateTime) driver.Instant { return driver.InstantOf(t.Time()) }

// settled reports whether no commit with a time at or before an instant can still
// appear. The caller holds the lock.
func (c *clock) settled(at driver.Instant) bool {
	if c.mode == modeHeld {
		return at <= c.last && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.at <= at })
	}
	return at <= c.stable
}

// acknowledge makes sure that whoever asks for an instant from then on, wherever, is given
// one that is not before a commit's. Commits in flight before it end soon, as a rule; where
// one does not, whoever reads waits for it, and the clock document says up to where.
func (c *clock) acknowledge(ctx context.Context, at driver.Instant) error {
	soon, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	if err := c.untilSettled(soon, at); err == nil || soon.Err() == nil || ctx.Err() != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked = max(c.acked, at)
	for began := c.changes; c.mode != modeHeld && c.ackStored < at && !c.settled(at); {
		c.kick()
		if err := c.await(ctx, began); err != nil {
			return err
		}
	}
	return nil
}

// untilSettled waits until no commit with a time at or before an instant can still appear.
func (c *clock) untilSettled(ctx context.Context, at driver.Instant) error {
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		c.mu.Lock()
		own := func() bool {
			return c.mode == modeHeld || slices.ContainsFunc(c.flights, func(f *flight) bool { return f.at <= at }) ||
				slices.ContainsFunc(slices.Collect(maps.Values(c.registered)), func(from driver.Instant) bool { return from <= at })
		}
		for began := c.changes; !c.settled(at) && own(); {
			if err := c.await(ctx, began); err != nil {
				c.mu.Unlock()
				return err
			}
		}
		done := c.settled(at)
		c.mu.Unlock()
		if done {
			return nil
		}
		if _, err := c.look(ctx); err != nil { // others have flights before it
			return err
		}
		c.mu.Lock()
		done = c.settled(at)
		c.mu.Unlock()
		if done {
			return nil
		}
		pause(ctx, wait)
	}
}

// instant returns one to read at.
func (c *clock) instant(ctx context.Context) (driver.Instant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began, wait := c.changes, firstLook
	for {
		switch {
		case c.leased():
			at := c.present()
			for _, f := range c.flights {
				at = min(at, f.at-1)
			}
			switch {
			case at < c.acked: // until those in flight before it have ended
			case at <= c.floor:
				c.last = max(c.last, at)
				return at, nil
			default:
				c.want(at)
			}
		case c.mode == modeShared:
			c.mu.Unlock()
			known, err := c.look(ctx)
			c.mu.Lock()
			if err != nil || known && c.stable >= max(c.acked, c.ackStored) {
				return c.stable, err
			}
			c.kick() // another server holds the clock, or there are flights before what was acknowledged
			c.mu.Unlock()
			pause(ctx, wait)
			c.mu.Lock()
			if wait = min(2*wait, lastLook); ctx.Err() == nil {
				continue
			}
		default:
			c.kick()
		}
		if err := c.await(ctx, began); err != nil {
			return 0, err
		}
	}
}

// settle makes an instant one that later commits are after, and waits until none at or
// before it can still appear. It is CodeInvalid where the instant is in the future.
func (c *clock) settle(ctx context.Context, at driver.Instant) error {
	c.mu.Lock()
	ahead := at > c.present()
	c.mu.Unlock()
	if ahead {
		if latest, err := c.latest(ctx); err != nil {
			return err
		} else if at > latest {
			return invalidf("%s is in the future; the store's clock says %s", at, latest)
		}
	}
	c.mu.Lock()
	for began := c.changes; ; {
		if c.leased() && at <= c.floor {
			c.last = max(c.last, at)
			break
		}
		if c.mode == modeShared && at <= c.mark {
			break
		}
		c.want(at)
		if err := c.await(ctx, began); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	c.mu.Unlock()
	return c.untilSettled(ctx, at)
}

// stuck is why nothing can be written or read now; nil: nothing is known to be wrong.
func (c *clock) stuck() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leased() {
		return c.apart
	}
	return cmp.Or(c.failed, c.apart)
}

// refusal is why nothing can be committed now, and will hardly be soon; nil: it may be.
func (c *clock) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.apart, c.gone())
}

// gone is what those are told who would wait for a database that has been out of reach for
// long; nil: they should wait. The caller holds the lock.
func (c *clock) gone() error {
	out := c.elapsed() - c.away
	if c.failed == nil || out < awayAfter || !isUnreachable(c.failed) {
		return nil
	}
	// What it wraps is that the time of an attempt was up, not that of a request.
	return driver.Errorf(driver.CodeUnavailable, "the MongoDB server has been out of reach for %v: %v", out.Round(time.Second), c.failed)
}
