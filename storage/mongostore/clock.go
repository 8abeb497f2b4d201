package mongostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// clock hands out the times of commits and the instants to read at, such that
// nothing commits at or before an instant that was handed out, by any server on
// the database, whichever process or machine was stopped, and for however long.
// The servers agree by one document, see clockState:
//
//   - A commit is registered in flight before it is sent: in an entry whose times are from
//     or later, on condition that last is less. The database notes, by its own clock,
//     since when the entry is there.
//   - Every update that makes versions current is refused by the database unless its
//     clock ($$NOW) is less than flight.until, and may run there for flight.run at
//     most (maxTimeMS). So nothing of an entry is carried out later than ms after since.
//   - When a commit has ended, its entry is removed and last raised to its time. It is
//     acknowledged when nothing is in flight before it, or acked says that it was.
//   - The instant to read at is last, or the one before the first in flight, and not before
//     acked: until then a reader waits.
//   - The entry of a server that is gone is evicted by the others, once the database's
//     clock says that nothing of it can be carried out any more.
//
// The only server on a database has a lease: an entry that it renews, under which
// it takes times and instants from memory, and nobody else registers anything. Another
// server adds itself to sharing, which ends the lease.
//
// Times follow the local clock, within a bound of the database's. Local clocks decide
// nothing else but when to ask the database.
type clock struct {
	meta     *mongo.Collection
	id       string // of this server
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

	mu       sync.Mutex
	landed   chan struct{}  // closed, and replaced, when flights have ended
	last     driver.Instant // the greatest instant handed out here, or known to be
	reach    driver.Instant // what the document's last is to be raised to
	acked    driver.Instant // the last commit that was acknowledged while others were in flight before it
	flights  []*flight      // of this server
	waiting  []*waiter
	released []string // entries of which nothing is in flight any more

	lease  grant // of this server; no entry: it has none
	ending bool  // the lease is to end

	state  *clockState    // the document, as it was read last
	stable driver.Instant // no commit gets a time at or before it any more
	now    driver.Instant // the database's clock
	heard  time.Duration  // when it said so, by elapsed
	lead   driver.Instant // how far times are to be after those of others, which are ahead
	poked  bool           // the document is to be changed, whether or not there is something to change
	failed error          // of the last change
	took   time.Duration  // by it, at least
	left   bool           // this server has left
}

// clockState is the clock document.
type clockState struct {
	Last    driver.Instant        `bson:"last"`  // later entries are after it
	Acked   driver.Instant        `bson:"acked"` // the last commit that was acknowledged with others in flight before it
	Now     bson.DateTime         `bson:"now"`   // the database's clock at the last change
	N       int64                 `bson:"n"`     // how many changes there were
	Flights map[string]clockEntry `bson:"flights"`
	Lease   string                `bson:"lease"`   // the entry that is one
	Sharing []string              `bson:"sharing"` // the servers that register each commit
}

type clockEntry struct {
	From  driver.Instant `bson:"from"`  // no time of it is before
	Ahead int64          `bson:"ahead"` // how far times may be after From, or Last as it was, in microseconds
	Since bson.DateTime  `bson:"since"` // the database's clock when it was made, or renewed
	Ms    int64          `bson:"ms"`    // for how long from then on something of it may be carried out
}

const clockID = "clock"

// top is the greatest time that an entry allows.
func (s *clockState) top(e clockEntry) driver.Instant {
	return max(s.Last, e.From) + driver.Instant(e.Ahead)
}

// flight is a commit, or a part of a load, on its way.
type flight struct {
	at    driver.Instant
	until bson.DateTime // the database's clock, from which on it refuses what the flight sends
	run   time.Duration // how long that may take there
	entry string
}

// waiter is a commit that waits for its time.
type waiter struct {
	after  driver.Instant
	life   time.Duration
	flight *flight // once it has one
}

// grant is what an entry allows its server.
type grant struct {
	entry string
	since bson.DateTime
	begun time.Duration  // before the change that made or renewed it
	life  time.Duration  // the longest of a write
	top   driver.Instant // the greatest time
}

// timing is what the protocol rests on. Only tests choose another one.
type timing struct {
	life  time.Duration // how long the database may run a small write
	skew  time.Duration // how far the clocks of the members of a replica set are apart at most
	renew time.Duration // between two renewals of a lease
}

var usual = timing{life: time.Second, skew: maxAhead, renew: 500 * time.Millisecond}

const (
	// maxAhead is how far an instant may be ahead of the database's clock.
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
	// errEmptied: the document was there, and is not any more.
	errEmptied = driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran; restore it, or start asof again for an empty store")
	// errNotYet: another server has to do something first.
	errNotYet = errors.New("the database, or another server, has not answered yet")
)

// sendable is for how long after an entry began writes with a life may be sent, and
// carriedOut for how long something of them may be carried out.
func sendable(life time.Duration) time.Duration   { return life * 3 / 2 }
func carriedOut(life time.Duration) time.Duration { return sendable(life) + life }

func instantOf(t bson.DateTime) driver.Instant    { return driver.InstantOf(t.Time()) }
func microseconds(d time.Duration) driver.Instant { return driver.Instant(d.Microseconds()) }

func newClock(s *Store, o Options) *clock {
	c := &clock{
		meta: s.meta, id: rand.Text(), wallTime: o.Clock, elapsed: o.elapsed, timing: o.timing, maxSkew: o.MaxSkew, causal: s.causal,
		ended: make(chan struct{}), landed: make(chan struct{}), state: new(clockState),
	}
	c.alive, c.stop = context.WithCancel(s.life)
	if c.timing == (timing{}) {
		c.timing = usual
	}
	c.edits.run = func() error { return c.edit(c.alive) }
	c.looks.run = func() error {
		c.mu.Lock()
		leases := c.lease.entry != ""
		c.mu.Unlock()
		if leases {
			return c.edits.do(c.alive)
		}
		return c.read(c.alive)
	}
	return c
}

// The caller of present, bound, leased, settled and serve holds the lock.

// present is the latest instant that is not in the future: what the local clock says,
// unless that is too far from the database's.
func (c *clock) present() driver.Instant {
	at := driver.InstantOf(c.wallTime())
	if c.maxSkew > 0 {
		at = max(at, c.bound()-microseconds(maxAhead+c.maxSkew))
	}
	return max(c.last, min(at, c.bound()))
}

// bound is what no instant is after, but the one that follows the last.
func (c *clock) bound() driver.Instant {
	return c.now + microseconds(c.elapsed()-c.heard+maxAhead)
}

// leased reports whether this server has a lease for sure.
func (c *clock) leased() bool {
	return c.lease.entry != "" && !c.ending && c.elapsed()-c.lease.begun < sendable(c.lease.life)
}

// settled reports whether no commit with a time at or before an instant can still appear.
func (c *clock) settled(at driver.Instant) bool {
	if c.lease.entry != "" {
		return at <= c.last && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.at <= at })
	}
	return at <= c.stable
}

// serve gives times, from least on, to the waiting commits that a grant allows.
func (c *clock) serve(g grant, least driver.Instant) {
	c.waiting = slices.DeleteFunc(c.waiting, func(w *waiter) bool {
		at := max(least, w.after+1)
		if at > g.top || w.life > g.life {
			return false
		}
		least = at + 1
		c.last = max(c.last, at)
		w.flight = &flight{at: at, until: g.since + bson.DateTime(sendable(w.life).Milliseconds()), run: w.life, entry: g.entry}
		c.flights = append(c.flights, w.flight)
		return true
	})
}

// until makes rounds until something is so, which it asks with the lock held and the number of
// rounds so far that did not fail. It fails when the context ends, or a round does for a reason
// that stays.
func (c *clock) until(ctx context.Context, r *rounds, so func(rounds int) bool) error {
	var reason error
	made := 0
	for n, wait := 0, firstWait; ; n, wait = n+1, min(2*wait, lastWait) {
		c.mu.Lock()
		landed, failed, holds := c.landed, c.failed, so(made)
		c.mu.Unlock()
		if holds {
			return nil
		}
		if n > 0 {
			select {
			case <-time.After(wait):
			case <-landed:
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
// before, which the database may run for life. The caller calls end, when it is certain
// that nothing of it can still be carried out.
func (c *clock) begin(ctx context.Context, after driver.Instant, life time.Duration) (*flight, error) {
	w := &waiter{after: after, life: life}
	c.mu.Lock()
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	err := c.until(ctx, &c.edits, func(int) bool {
		if w.flight == nil && c.leased() {
			c.serve(c.lease, max(c.present(), c.last+1))
		}
		return w.flight != nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.flight != nil {
		return w.flight, nil
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(other *waiter) bool { return other == w })
	return nil, err
}

// end ends flights of which nothing can be carried out any more.
func (c *clock) end(flights ...*flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flights = slices.DeleteFunc(c.flights, func(f *flight) bool { return slices.Contains(flights, f) })
	for _, f := range flights {
		c.reach = max(c.reach, f.at)
		c.release(f.entry)
	}
	close(c.landed)
	c.landed = make(chan struct{})
	if len(c.released) > 0 || c.ending {
		c.edits.ask() // others wait for it
	}
}

// release notes that an entry is to be removed, unless it is the lease or something of it
// is in flight. The caller holds the lock.
func (c *clock) release(entry string) {
	if entry != c.lease.entry && !slices.Contains(c.released, entry) && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.entry == entry }) {
		c.released = append(c.released, entry)
	}
}

// awaitEnd waits until nothing of some flights can be carried out any more, by the
// database's own clock.
func (c *clock) awaitEnd(ctx context.Context, flights []*flight) error {
	end := driver.Instant(0)
	for _, f := range flights {
		end = max(end, instantOf(f.until)+microseconds(f.run+c.timing.skew))
	}
	c.mu.Lock()
	left := time.Duration(end-c.now)*time.Microsecond - (c.elapsed() - c.heard)
	c.mu.Unlock()
	pause(ctx, left)
	return c.until(ctx, &c.edits, func(int) bool {
		c.poked = c.poked || c.now <= end
		return c.now > end
	})
}

// acknowledge returns when a commit that has ended may be acknowledged: when every instant
// that any server hands out from then on is at its time or later. Commits in flight before
// it mostly end soon; where one does not, readers wait for that.
func (c *clock) acknowledge(ctx context.Context, at driver.Instant) error {
	soon, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	// First others get to know that it is not in flight any more.
	_ = c.until(soon, &c.edits, func(rounds int) bool { return rounds > 0 || c.settled(at) })
	err := c.until(soon, &c.looks, func(int) bool { return c.settled(at) })
	if err == nil || soon.Err() == nil || ctx.Err() != nil {
		return err
	}
	return c.until(ctx, &c.edits, func(int) bool {
		c.acked = max(c.acked, at)
		return c.lease.entry != "" || c.state.Acked >= at || c.settled(at)
	})
}

// instant returns one to read at: not before any acknowledged commit, and such that none
// before it is in flight.
func (c *clock) instant(ctx context.Context) (at driver.Instant, err error) {
	err = c.until(ctx, &c.looks, func(rounds int) bool {
		if c.lease.entry == "" {
			at = c.stable
			return rounds > 0 && c.state.Lease == "" && at >= c.state.Acked
		}
		at = c.present()
		for _, f := range c.flights {
			at = min(at, f.at-1)
		}
		at = max(at, c.acked)
		if at > c.lease.top || !c.leased() {
			c.poked = true
			return false
		}
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
	ahead := at > c.present()
	c.mu.Unlock()
	if ahead {
		if latest, err := c.latest(ctx); err != nil {
			return err
		} else if at > latest {
			return invalidf("%s is in the future; the store's clock says %s", at, latest)
		}
	}
	err := c.until(ctx, &c.edits, func(int) bool {
		switch {
		case c.lease.entry == "" && at <= c.state.Last:
			return true
		case c.leased() && at <= c.lease.top:
			c.last = max(c.last, at)
			return true
		}
		c.reach = max(c.reach, at)
		return false
	})
	if err != nil {
		return err
	}
	return c.until(ctx, &c.looks, func(int) bool { return c.settled(at) })
}

// check returns why the document could not be changed the last time, where that matters, and
// has it tried again.
func (c *clock) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil || c.leased() {
		return nil
	}
	c.poked = true
	c.edits.ask()
	return wrap(c.failed, "agreeing with other servers on the time")
}

func decodeClock(raw bson.Raw) (*clockState, error) {
	state := new(clockState)
	if err := bson.Unmarshal(raw, state); err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable,
			"another program wrote into the document %q of %s (%w); stop all asof servers on the database and remove the document: asof makes it anew when it starts",
			clockID, metaName, err)
	}
	return state, nil
}

// changes are those of one update of the clock document, by operator.
type changes map[string]bson.D

func (u changes) add(operator, field string, value any) {
	u[operator] = append(u[operator], bson.E{Key: field, Value: value})
}

// where selects the clock document on conditions.
func where(conditions ...bson.E) bson.D {
	return append(bson.D{{Key: "_id", Value: clockID}}, conditions...)
}

// change changes the document where a condition holds, and returns what it says then; nil
// where the condition does not hold. It is given up after twice as long as the last change
// took, so that a slow database is waited for.
func (c *clock) change(ctx context.Context, condition bson.D, u changes, o ...options.Lister[options.FindOneAndUpdateOptions]) (*clockState, error) {
	ctx, done := c.causal(ctx)
	defer done()
	c.mu.Lock()
	timeout := max(c.timing.life, min(2*c.took, longestLife))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	u.add("$inc", "n", int64(1))
	u.add("$currentDate", "now", true)
	began := c.elapsed()
	raw, err := c.meta.FindOneAndUpdate(ctx, condition, u, append(o, options.FindOneAndUpdate().SetReturnDocument(options.After))...).Raw()
	var state *clockState
	if err == nil {
		state, err = decodeClock(raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = c.elapsed() - began
	switch {
	case err == nil:
		c.now, c.heard = instantOf(state.Now), c.elapsed()
		c.observe(state)
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil, nil
	}
	return state, err
}

// observe notes what the document says, unless a later state of it is known. The caller holds
// the lock.
func (c *clock) observe(state *clockState) {
	if state.N < c.state.N {
		return
	}
	c.state, c.last = state, max(c.last, state.Last)
	if state.Lease != c.lease.entry {
		c.lease, c.ending = grant{}, false // it has ended, or this server was evicted
	}
	if state.Lease != "" {
		return // what is in flight is not in the document
	}
	stable := state.Last
	for _, e := range state.Flights {
		stable = min(stable, e.From-1)
	}
	c.stable = max(c.stable, stable)
}

// othersShare reports whether other servers take part, and vacant whether none does. The caller
// holds the lock.
func (c *clock) othersShare() bool {
	return slices.ContainsFunc(c.state.Sharing, func(id string) bool { return id != c.id })
}

func (c *clock) vacant() bool {
	return c.state.Lease == "" && len(c.state.Flights)+len(c.flights) == 0 && !c.othersShare()
}

// read reads the document, evicts servers that are gone, and asks another one to end
// its lease.
func (c *clock) read(ctx context.Context) error {
	reading, done := c.causal(ctx)
	raw, err := c.meta.FindOne(reading, where()).Raw()
	done()
	if errors.Is(err, mongo.ErrNoDocuments) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.state, c.lease, c.ending = new(clockState), grant{}, false // another document begins anew
		return errEmptied
	}
	if err != nil {
		return err
	}
	state, err := decodeClock(raw)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.observe(state)
	now, lease := c.now+microseconds(c.elapsed()-c.heard), c.lease.entry
	c.mu.Unlock()
	for entry, e := range state.Flights {
		end := instantOf(e.Since) + driver.Instant(1000*e.Ms) + microseconds(c.timing.skew)
		if now <= end || entry == lease {
			continue
		}
		evict, name := make(changes), "flights."+entry
		evict.add("$max", "last", int64(state.top(e))) // instants up to there may have been handed out
		evict.add("$unset", name, "")
		if entry == state.Lease {
			evict.add("$unset", "lease", "")
		}
		if _, err := c.change(ctx, where(
			// Its time is one of milliseconds, as it came.
			bson.E{Key: name + ".since", Value: bson.D{{Key: "$gte", Value: e.Since}, {Key: "$lt", Value: e.Since + 1}}}, bson.E{Key: name + ".ms", Value: e.Ms},
			bson.E{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$$NOW", bson.NewDateTimeFromTime(end.Time())}}}},
		), evict); err != nil {
			return err
		}
	}
	if state.Lease != lease && !slices.Contains(state.Sharing, c.id) {
		ask := changes{"$addToSet": {{Key: "sharing", Value: c.id}}}
		_, err = c.change(ctx, where(bson.E{Key: "lease", Value: exists(true)}), ask)
	}
	return err
}

// edit makes the changes that are due: it removes the entries that were released, raises last,
// and makes an entry for the waiting commits; or it renews, takes or ends the lease.
func (c *clock) edit(ctx context.Context) error {
	c.mu.Lock()
	lease, entry, begun := c.lease.entry, "", c.elapsed()
	u, condition := make(changes), where(bson.E{Key: "lease", Value: exists(false)})
	released, reach, acked, due := slices.Clone(c.released), c.reach, c.acked, c.poked || len(c.waiting) > 0
	from, life, ahead := max(c.present(), c.last+1), c.timing.life, time.Millisecond // at most a thousand commits
	ending, left := c.ending, c.left
	draining, lead := ending && len(c.flights) > 0, c.lead
	if lease != "" {
		condition = where(bson.E{Key: "lease", Value: lease})
		from, life = max(from, reach), max(life, min(2*c.took, longestLife))
		for _, f := range c.flights {
			life = max(life, f.run)
		}
	}
	for _, w := range c.waiting {
		from, life = max(from, w.after+1), max(life, w.life)
	}
	switch {
	case draining: // until then it asks only for the database's clock
		released, reach = nil, 0
	case ending:
		u.add("$unset", "lease", "")
		released, reach = append(released, lease), c.last
	case lease != "" && (due || reach > c.lease.top || !c.leased()):
		entry, ahead, reach = lease, 2*life, 0
	case lease == "" && due && c.vacant() && !left:
		entry, ahead = rand.Text(), 2*life
		condition = append(condition, bson.E{Key: "n", Value: c.state.N})
		u.add("$set", "lease", entry)
	case len(c.waiting) > 0:
		entry, from = rand.Text(), max(from, min(c.last+1+c.lead, c.bound()))
		condition = append(condition, bson.E{Key: "last", Value: bson.D{{Key: "$lt", Value: int64(from)}}})
	case lease != "" || !due && len(released) == 0 && reach <= c.state.Last && c.acked <= c.state.Acked:
		c.mu.Unlock()
		return nil
	}
	c.poked = false
	c.mu.Unlock()

	if entry != "" {
		name := "flights." + entry
		u.add("$max", name+".from", int64(from))
		u.add("$set", name+".ahead", ahead.Microseconds())
		u.add("$set", name+".ms", carriedOut(life).Milliseconds())
		u.add("$currentDate", name+".since", true)
	}
	for _, name := range released {
		u.add("$unset", "flights."+name, "")
	}
	if reach > 0 {
		u.add("$max", "last", int64(reach))
	}
	if lease == "" || ending && !draining {
		u.add("$max", "acked", int64(acked))
		if left {
			u.add("$pull", "sharing", c.id)
		} else {
			u.add("$addToSet", "sharing", c.id)
		}
	}
	state, err := c.change(ctx, condition, u)
	if err == nil && state == nil { // another server is in the way
		err = cmp.Or(c.read(ctx), errNotYet)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lead = 0; errors.Is(err, errNotYet) && !draining {
		c.lead = max(2*lead, microseconds(c.elapsed()-begun))
	}
	switch {
	case err != nil:
		if c.failed = err; errors.Is(err, errNotYet) {
			c.failed = nil
		} else if entry != "" {
			c.release(entry) // it may have been made
		}
		return err
	case draining:
		return errNotYet
	case entry != "":
		g := grant{entry: entry, since: state.Flights[entry].Since, begun: begun, life: life, top: state.top(state.Flights[entry])}
		if from = max(from, state.Last+1); state.Lease == entry {
			from = max(c.present(), c.last+1)
			if c.state.Lease == entry {
				c.lease = g
			}
		}
		c.serve(g, from)
		c.release(entry) // if nobody waits any more
	}
	c.failed = nil
	c.released = slices.DeleteFunc(c.released, func(entry string) bool { return slices.Contains(released, entry) })
	c.ending = c.lease.entry != "" && (c.left || c.othersShare())
	if c.ending || len(c.released) > 0 {
		c.edits.ask()
	}
	return nil
}

// open makes this server one of those on the database. known is the time of the last
// version. Then run has to run.
func (c *clock) open(ctx context.Context, known driver.Instant) error {
	come := func(upsert bool) (*clockState, error) {
		u := changes{
			"$max": {{Key: "last", Value: int64(known)}}, "$addToSet": {{Key: "sharing", Value: c.id}},
			"$unset": {{Key: "hold", Value: ""}}, // of older programs
		}
		return c.change(ctx, where(), u, options.FindOneAndUpdate().SetUpsert(upsert))
	}
	state, err := come(true)
	if mongo.IsDuplicateKeyError(err) { // another server has just made it
		state, err = come(false)
	}
	if err == nil && state == nil {
		err = errEmptied
	}
	c.mu.Lock()
	c.poked = c.vacant()
	others := c.othersShare()
	c.mu.Unlock()
	if err == nil && others { // those who are there add themselves again
		_, err = c.change(ctx, where(), changes{"$set": {{Key: "sharing", Value: bson.A{c.id}}}})
	}
	if err == nil {
		err = c.edit(ctx)
	}
	if errors.Is(err, errNotYet) {
		return nil
	}
	return err
}

// run renews the lease, or takes it when other servers have left, until the store is closed.
func (c *clock) run() {
	defer close(c.ended)
	renew := time.NewTicker(c.timing.renew)
	defer renew.Stop()
	for {
		select {
		case <-c.alive.Done():
			return
		case <-renew.C:
		}
		c.mu.Lock()
		c.poked = c.poked || c.lease.entry != "" || c.vacant()
		due := c.poked
		c.mu.Unlock()
		if due {
			_ = c.edits.do(c.alive) // it is tried again
		}
	}
}

// leave is called when nothing of this server is under way any more. What may still be
// carried out stays in flight, until others evict it.
func (c *clock) leave(ctx context.Context) error {
	c.stop()
	<-c.ended
	c.mu.Lock()
	left := c.left
	c.left, c.poked, c.ending = true, true, c.lease.entry != ""
	c.mu.Unlock()
	if left {
		return nil
	}
	return retryTimeouts(ctx, func() error {
		if err := c.edit(ctx); !errors.Is(err, errNotYet) && !errors.Is(err, errEmptied) {
			return err
		}
		return nil
	})
}
