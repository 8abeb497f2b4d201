package mongostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// clock hands out the times of commits and the instants to read at, such that nothing commits at or before an
// instant that was handed out, by any server on the database, whichever process or machine was stopped, and for
// however long. The servers agree by one document, clockState (see docs/mongodb.md, "Clocks"):
//
//   - A commit is registered in an entry before it is sent, at a time after last. The
//     database refuses it later than entry.Ms after entry.Since, by its own clock.
//   - It is acknowledged when nothing is in flight before it, or acked says that it was.
//   - The instant to read at is before the first entry, and not before acked.
//   - The only server has a lease: an entry that it renews, under which it takes times and
//     instants from memory. It ends the lease when it finds another one in Servers.
//
// Local clocks are followed within a bound of the database's, and decide nothing else but when to ask it.
type clock struct {
	meta     *mongo.Collection
	id       string // of this server; the names of its entries begin with it
	alive    context.Context
	stop     context.CancelFunc
	ended    chan struct{}
	wallTime func() time.Time
	elapsed  func() time.Duration // never goes back
	timing   timing
	maxSkew  time.Duration // how far times may be behind the database's clock
	causal   func(context.Context) (context.Context, func())
	edits    rounds // of edit
	looks    rounds // of look

	mu           sync.Mutex
	flightsEnded chan struct{}  // closed, and replaced, when flights have ended
	last         driver.Instant // the greatest instant handed out here, or known to be; the document's last is raised to it
	acked        driver.Instant // the last commit that was acknowledged while others were in flight before it
	flights      []*flight      // of this server
	lease        clockEntry     // the last that this server had; none from when it is to end

	state  *clockState    // the document, as it was read last, without this server in Servers
	now    driver.Instant // the database's clock
	heard  time.Duration  // when it said so, by elapsed
	lead   driver.Instant // how far times are to be after those of others, which are ahead
	renew  bool           // the next edit is to be made, whether or not anything has changed
	failed error          // of the last edit, if it was needed
	took   time.Duration  // by the last change, at least
	left   bool           // this server has left
}

// clockState is the clock document.
type clockState struct {
	Last    driver.Instant           `bson:"last"`  // later entries are after it
	Acked   driver.Instant           `bson:"acked"` // the last commit that was acknowledged with others in flight before it
	Now     bson.DateTime            `bson:"now"`   // the database's clock at the last change
	N       int64                    `bson:"n"`     // how many changes there were, but for those beside the lease of another server
	Flights map[string]clockEntry    `bson:"flights"`
	Lease   string                   `bson:"lease"`   // the entry that is one
	Servers map[string]bson.DateTime `bson:"servers"` // when each of those on the database last said so, by its clock
}

type clockEntry struct {
	From  driver.Instant `bson:"from"`  // no time of it is before
	Since bson.DateTime  `bson:"since"` // the database's clock when it was made, or renewed
	Ms    int64          `bson:"ms"`    // for how long from then on something of it may be carried out
	name  string         // of this server's
	begun time.Duration  // before the change that made or renewed it; of this server's
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
	at    driver.Instant // the time; Forever while it waits
	until bson.DateTime  // the database's clock, from which on it refuses what the flight sends
	run   time.Duration  // how long that may take there
	entry string
	note  any // the _id of the note of its transaction; nil: none
}

// timing is what the protocol rests on. Only tests choose another one.
type timing struct {
	life  time.Duration // how long the database may run a small write
	skew  time.Duration // how far the clocks of the members of a replica set are apart at most
	renew time.Duration // between two edits of a server that has nothing to do
}

var usual = timing{life: time.Second, skew: maxAhead, renew: 500 * time.Millisecond}

const (
	clockID = "clock" // of its document
	// maxAhead is how far an instant may be ahead of the database's clock, but for the one that follows the last.
	maxAhead = 500 * time.Millisecond
	// longestLife bounds how long a command on the clock document may take, and the life of a write, unless that
	// of the first attempt is a large part of it.
	longestLife = 10 * time.Second
	// ackWait is how long a commit waits for others in flight before it, so that readers need not.
	ackWait             = 50 * time.Millisecond
	firstWait, lastWait = time.Millisecond, 50 * time.Millisecond // between two rounds
)

var (
	errEmptied = driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran; restore it, or start asof again for an empty store")
	errNotYet  = errors.New("the database, or another server, has not answered yet")
)

// sendable is for how long after an entry began writes with a life may be sent, and msOf
// for how many milliseconds something of them may be carried out.
func sendable(life time.Duration) time.Duration { return life * 3 / 2 }

func msOf(life time.Duration) int64 { return (sendable(life) + life).Milliseconds() + 1 }

func newClock(s *Store, o Options) *clock {
	c := &clock{
		meta: s.meta, id: rand.Text(), wallTime: o.Clock, elapsed: o.elapsed, timing: cmp.Or(o.timing, usual), maxSkew: cmp.Or(o.MaxSkew, math.MaxInt64), causal: s.causal,
		ended: make(chan struct{}), flightsEnded: make(chan struct{}), state: new(clockState),
	}
	c.alive, c.stop = context.WithCancel(context.WithoutCancel(s.life))
	c.edits.run = func() error { return c.edit(c.alive) }
	c.looks.run = func() error { return c.look(c.alive) }
	return c
}

// The caller of the following nine holds the lock.

// databaseNow is about what the database's clock says now, or less.
func (c *clock) databaseNow() driver.Instant { return c.now + microseconds(c.elapsed()-c.heard) }

// present is the latest instant that is not in the future: what the local clock says,
// unless that is too far from the database's.
func (c *clock) present() driver.Instant {
	at, now := driver.InstantOf(c.wallTime()), c.databaseNow()
	return max(c.last, min(max(at, now-microseconds(c.maxSkew)), now+microseconds(maxAhead)))
}

// commandTime is how long a change of the document may take: after a slow one, twice as long.
func (c *clock) commandTime() time.Duration { return max(c.timing.life, min(2*c.took, longestLife)) }

// owns reports whether an entry is this server's; "" is none's.
func (c *clock) owns(entry string) bool { return strings.HasPrefix(entry, c.id) }

// leased reports whether this server has a lease for sure.
func (c *clock) leased() bool {
	return c.lease.name != "" && c.lease.name == c.state.Lease && c.elapsed()-c.lease.begun < sendable(c.lease.life())
}

// stable is an instant at or before which no commit can still appear, the latest that is known.
func (c *clock) stable() (at driver.Instant) {
	switch lease := c.state.Lease; {
	case c.owns(lease):
		at = min(c.last, c.top(c.lease)) // others take later times when they have evicted it
		for _, f := range c.flights {
			at = min(at, f.at-1)
		}
	case lease == "": // else what is in flight is not in the document
		at = c.state.Last
		for _, e := range c.state.Flights {
			at = min(at, e.From-1)
		}
	}
	return at
}

// idle returns the entries of this server in which nothing is in flight any more, but for the lease.
func (c *clock) idle() (entries []string) {
	for entry := range c.state.Flights {
		if c.owns(entry) && entry != c.lease.name && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.entry == entry }) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// serve gives times, from least on, to the waiting flights that an entry of this server allows.
func (c *clock) serve(e clockEntry, least driver.Instant) {
	for _, f := range c.flights {
		if at := max(least, c.last+1); f.at == driver.Forever && at <= c.top(e) && f.run <= e.life() {
			f.at, f.until, f.entry, c.last = at, e.Since+bson.DateTime(sendable(f.run).Milliseconds()), e.name, at
		}
	}
}

// observe notes what the document says, unless a later state of it is known.
func (c *clock) observe(state *clockState) {
	if state.N >= c.state.N {
		delete(state.Servers, c.id)
		c.state, c.last = state, max(c.last, state.Last)
	}
}

// until makes rounds until a condition holds, which is called with the lock held and the number of rounds that did
// not fail. It fails when the context ends, or a round fails for a reason that another attempt meets again.
func (c *clock) until(ctx context.Context, r *rounds, condition func(rounds int) bool) error {
	var reason error
	for made, wait := 0, time.Duration(0); ; wait = min(2*wait+firstWait, lastWait) {
		c.mu.Lock()
		flightsEnded, failed, holds := c.flightsEnded, c.failed, condition(made)
		c.mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-flightsEnded:
		case <-ctx.Done():
		}
		err := r.do(ctx)
		switch {
		case ctx.Err() != nil:
			return driver.Errorf(driver.CodeUnavailable, "%v: the time was up: %w", disagreement(cmp.Or(reason, failed, errNotYet)), ctx.Err())
		case err != nil && !passes(err) && !errors.Is(err, errNotYet):
			return disagreement(err)
		case err == nil:
			made++
		}
		reason = err
	}
}

// begin returns a flight at a time greater than after and all that were handed out before, which the database may
// run for life. The caller calls end when nothing of it can be carried out any more.
func (c *clock) begin(ctx context.Context, after driver.Instant, life time.Duration) (*flight, error) {
	f := &flight{at: driver.Forever, run: life}
	c.mu.Lock()
	c.flights, c.last = append(c.flights, f), max(c.last, after)
	c.mu.Unlock()
	err := c.until(ctx, &c.edits, func(int) bool {
		if c.leased() {
			c.serve(c.lease, c.present())
		}
		return f.at != driver.Forever
	})
	if err != nil {
		c.end(f) // nothing of it is sent, even if it has got a time by now
	}
	return f, err
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

// awaitEnd waits until the database's own clock says that nothing of some flights can be carried out any more.
func (c *clock) awaitEnd(ctx context.Context, flights []*flight) error {
	end := driver.Instant(0)
	for _, f := range flights {
		end = max(end, instantOf(f.until)+microseconds(f.run+c.timing.skew))
	}
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
	_ = c.until(soon, &c.edits, func(rounds int) bool { return rounds > 0 || c.leased() || at <= c.stable() })
	err := c.until(soon, &c.looks, func(int) bool { return at <= c.stable() })
	if err == nil || soon.Err() == nil || ctx.Err() != nil {
		return err
	}
	return c.until(ctx, &c.edits, func(int) bool {
		c.acked = max(c.acked, at)
		return c.leased() || c.state.Acked >= at && c.state.Lease == "" || at <= c.stable() // one with a lease may not know acked yet
	})
}

// instant returns one to read at: not before any acknowledged commit, and such that none before it is in flight.
func (c *clock) instant(ctx context.Context) (at driver.Instant, err error) {
	err = c.until(ctx, &c.looks, func(rounds int) bool {
		known := rounds > 0 && c.state.Lease == ""
		if c.leased() {
			known, c.last = true, max(c.last, min(c.present(), c.top(c.lease)))
		}
		at = c.stable()
		return known && at >= max(c.acked, c.state.Acked)
	})
	return at, err
}

// latest is the latest instant that is not in the future, also where another server's clock
// is ahead of this one's; or an earlier one that is enough.
func (c *clock) latest(ctx context.Context, enough driver.Instant) (at driver.Instant, err error) {
	err = c.until(ctx, &c.looks, func(rounds int) bool {
		at = c.present()
		return at >= enough || rounds > 0 || c.leased()
	})
	return at, err
}

// settle makes an instant one that later commits are after, and waits until none at or
// before it can still appear. It is CodeInvalid where the instant is in the future.
func (c *clock) settle(ctx context.Context, at driver.Instant) error {
	present, err := c.latest(ctx, at)
	switch {
	case err != nil:
		return err
	case at > present:
		return invalidf("%s is in the future; the store's clock says %s", at, present)
	}
	err = c.until(ctx, &c.edits, func(int) bool {
		c.last, c.renew = max(c.last, at), true
		return c.leased() && at <= c.top(c.lease) || c.state.Lease == "" && at <= c.state.Last
	})
	if err == nil {
		err = c.until(ctx, &c.looks, func(int) bool { return at <= c.stable() })
	}
	return err
}

// check returns why the last change of the document failed; nil where it was not needed.
func (c *clock) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return disagreement(c.failed)
}

func disagreement(err error) error { return wrap(err, "agreeing with other servers on the time") }

// changes are those of one update of the clock document, by operator.
type changes map[string]bson.D

func (u changes) add(operator, field string, value any) {
	u[operator] = append(u[operator], bson.E{Key: field, Value: value})
}

// read reads the document.
func (c *clock) read(ctx context.Context) error {
	ctx, done := c.causal(ctx)
	defer done()
	state, err := decodeClock(c.meta.FindOne(ctx, bson.D{{Key: "_id", Value: clockID}}).Raw())
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.observe(state)
	case errors.Is(err, mongo.ErrNoDocuments):
		c.state, err = new(clockState), errEmptied // another document begins anew
	}
	return err
}

// look reads the document, unless it is known: nobody else changes it under a lease.
func (c *clock) look(ctx context.Context) error {
	c.mu.Lock()
	leased, own := c.leased(), c.owns(c.state.Lease)
	c.renew = c.renew || own && !leased // an edit that is under way may end the lease
	c.mu.Unlock()
	switch {
	case leased:
		return nil
	case own:
		return c.edits.do(ctx)
	}
	return c.read(ctx)
}

// edit changes the document: it says that this server is there, and what has ended here; and it renews,
// takes or ends the lease, or makes an entry for the flights that wait. It returns errNotYet where
// another server is in the way, and has read the document where that changed it. It ends after commandTime.
func (c *clock) edit(ctx context.Context) error {
	ctx, done := c.causal(ctx)
	defer done()
	c.mu.Lock()
	begun, lease, u := c.elapsed(), c.state.Lease, make(changes)
	own, vacant := c.owns(lease), lease == "" && len(c.state.Servers) == 0 && !c.left
	for entry := range c.state.Flights {
		vacant = vacant && c.owns(entry)
	}
	from, life, first, waits := max(c.present(), c.last+1), c.timing.life, driver.Forever, false
	for _, f := range c.flights {
		life, waits = max(life, f.run), waits || f.at == driver.Forever
		if f.entry == lease {
			first = min(first, f.at)
		}
	}
	if !c.renew && !waits && len(c.idle()) == 0 && c.acked <= c.state.Acked && (!own || c.leased()) {
		c.mu.Unlock()
		return nil // there is nothing to say
	}
	c.renew = false
	u.add("$inc", "n", int64(1))
	entry, condition := "", bson.D{{Key: "lease", Value: exists(false)}}
	switch {
	case own && (c.left || c.lease.name != lease || len(c.state.Servers) > 0):
		c.lease = clockEntry{} // once begun, it is ended: it may have been in the document
		u.add("$unset", "lease", "")
		if first < driver.Forever { // it goes on as an entry like any other
			u.add("$set", "flights."+lease+".from", int64(first))
		}
	case own:
		entry, life = lease, max(life, c.commandTime())
		c.lease.Ms = min(c.lease.Ms, msOf(life)) // meanwhile it allows no more than then
	case lease != "": // the other server sees this one, and ends it; this one is not in its way
		condition[0].Value = lease
		delete(u, "$inc")
	case vacant:
		entry, life = c.id+rand.Text(), max(life, c.commandTime())
		u.add("$set", "lease", entry)
	case waits:
		entry, from = c.id+rand.Text(), max(from, min(c.last+1+c.lead, c.databaseNow()+microseconds(maxAhead)))
		condition = append(condition, bson.E{Key: "last", Value: bson.D{{Key: "$lt", Value: int64(from)}}})
	}
	if own || vacant {
		// A lease is changed only by who knows the document as it is: a change that arrives late,
		// after others, is not carried out.
		condition = bson.D{{Key: "n", Value: c.state.N}}
	}
	if entry != "" {
		name := "flights." + entry
		u.add("$max", name+".from", int64(from))
		u.add("$set", name+".ms", msOf(life))
		u.add("$currentDate", name+".since", true)
	}
	for _, name := range c.idle() {
		u.add("$unset", "flights."+name, "")
	}
	u.add("$max", "last", int64(c.last))
	u.add("$max", "acked", int64(c.acked))
	for id, at := range c.state.Servers {
		if c.gone(clockEntry{Since: at, Ms: msOf(c.timing.life)}) < c.now {
			u.add("$unset", "servers."+id, "") // if it is not gone, it comes again
		}
	}
	if c.left {
		u.add("$unset", "servers."+c.id, "")
	} else {
		u.add("$currentDate", "servers."+c.id, true)
	}
	u.add("$currentDate", "now", true)
	step, cancel := context.WithTimeout(ctx, c.commandTime())
	defer cancel()
	c.mu.Unlock()

	state, err := decodeClock(c.meta.FindOneAndUpdate(step, append(condition, bson.E{Key: "_id", Value: clockID}), u, options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw())
	took := c.elapsed() - begun
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		err = cmp.Or(c.read(ctx), errNotYet)
	case err == nil && lease != "" && !own:
		err = errNotYet
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took = took; state != nil {
		c.now, c.heard = instantOf(state.Now), begun+took
		c.observe(state)
	}
	lead := c.lead
	if c.failed, c.lead = err, 0; errors.Is(err, errNotYet) && entry != "" { // another server was first
		c.lead = min(2*lead+microseconds(took), microseconds(maxAhead))
	}
	if errors.Is(err, errNotYet) || c.leased() {
		c.failed = nil // another server is to do something, or it is tried again in time
	}
	if err != nil {
		c.renew = true
		return err
	}
	if entry != "" {
		e := state.Flights[entry]
		e.name, e.begun = entry, begun
		if state.Lease == entry {
			c.lease, from = e, c.present()
		}
		c.serve(e, from)
	}
	if own && len(c.state.Servers) > 0 || len(c.idle()) > 0 {
		c.renew = true
		c.edits.ask()
	}
	return nil
}

// evict removes the entries of servers that are gone. First it withdraws their transactions, which
// waits for those that are about to be committed; so no edit waits for it. What fails is tried again.
func (c *clock) evict(ctx context.Context) {
	ctx, done := c.causal(ctx)
	defer done()
	c.mu.Lock()
	state, now, timeout := c.state, c.now, c.commandTime()
	c.mu.Unlock()
	for entry, e := range state.Flights {
		if c.owns(entry) || now <= c.gone(e) {
			continue
		}
		top, u := int64(c.top(e)), make(changes)
		// Some servers keep a time more exactly than they tell it.
		condition := bson.D{{Key: "_id", Value: clockID}, {Key: "flights." + entry + ".since", Value: bson.D{{Key: "$lt", Value: e.Since + 1}}}}
		u.add("$inc", "n", int64(1))
		u.add("$unset", "flights."+entry, "")
		u.add("$max", "last", top) // instants up to there may have been handed out
		if entry == state.Lease {
			condition = append(condition, bson.E{Key: "lease", Value: entry})
			u.add("$unset", "lease", "")
			u.add("$max", "acked", top) // what was acknowledged under it may be in no document
		}
		step, cancel := context.WithTimeout(ctx, timeout)
		if deleteNotes(step, c.meta, notesOf(entry)) == nil {
			_, _ = c.meta.UpdateOne(step, condition, u)
		}
		cancel()
	}
}

// open makes this server one of those on the database. known is the time of the last version. Then run has to run.
func (c *clock) open(ctx context.Context, known driver.Instant) error {
	_, err := c.meta.InsertOne(ctx, bson.D{{Key: "_id", Value: clockID}, {Key: "last", Value: int64(known)}, {Key: "now", Value: bson.DateTime(0)}, {Key: "n", Value: int64(0)}})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return err
	}
	c.last, c.renew = known, true
	if err = c.read(ctx); err == nil {
		err = c.edit(ctx)
	}
	if errors.Is(err, errNotYet) {
		return nil
	}
	return err
}

// run edits the document from time to time, until the store is closed: the lease is renewed, or
// taken when other servers have left, and others see that this one is there.
func (c *clock) run() {
	defer close(c.ended)
	for c.alive.Err() == nil {
		pause(c.alive, c.timing.renew)
		c.mu.Lock()
		c.renew = true
		c.mu.Unlock()
		_ = c.edits.do(c.alive) // it is tried again
		c.evict(c.alive)
	}
}

// leave is called when nothing of this server is under way any more. What may still be
// carried out stays in flight until others evict it, and so does all, where they are not told.
func (c *clock) leave(ctx context.Context) {
	c.mu.Lock()
	c.left, c.renew = true, true
	c.mu.Unlock()
	if c.alive.Err() == nil {
		_ = c.until(ctx, &c.edits, func(rounds int) bool { return rounds > 0 || c.state.Lease != "" && !c.owns(c.state.Lease) })
	}
	c.stop()
	<-c.ended
}
