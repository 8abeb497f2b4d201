package mongostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/singleflight"

	"github.com/asof/asof/storage/driver"
)

// clock hands out the times of commits and the instants to read at, such that nothing
// commits at or before an instant that was handed out, by any server on the database,
// whichever process or machine was stopped, and for however long. The servers agree by
// one document, clockState (see docs/mongodb.md, "Clocks"):
//
//   - A commit is registered in an entry before it is sent, at a time after last. The
//     database refuses it later than a life after entry.Since, by its own clock.
//   - It is acknowledged when nothing is in flight at its time or before.
//   - The instant to read at is before the first entry, else last.
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
	loops    sync.WaitGroup
	wallTime func() time.Time
	elapsed  func() time.Duration // never goes back
	timing   timing
	maxSkew  time.Duration // how far times may be behind the database's clock; 0: as far as the local clock
	edits    rounds        // of edit
	looks    rounds        // of look

	mu           sync.Mutex
	flightsEnded chan struct{}  // closed, and replaced, when flights have ended
	last         driver.Instant // the greatest instant handed out here, or known to be; the document's last is raised to it
	flights      []*flight      // of this server
	lease        grant          // the last that this server had; none from when it is to end

	state  *clockState    // the document, as it was read last, without this server in Servers
	stable driver.Instant // no commit gets a time at or before it any more
	now    driver.Instant // the database's clock
	heard  time.Duration  // when it said so, by elapsed
	lead   driver.Instant // how far times are to be after those of others, which are ahead
	renew  bool           // the next edit is to be made, whether or not anything has changed
	failed error          // of the last edit
	took   time.Duration  // by that
	left   bool           // this server has left
}

// clockState is the clock document.
type clockState struct {
	Last    driver.Instant           `bson:"last"` // later entries are after it
	Now     bson.DateTime            `bson:"now"`  // the database's clock at the last edit
	N       int64                    `bson:"n"`    // how many changes there were, but for those beside the lease of another server
	Flights map[string]clockEntry    `bson:"flights"`
	Lease   string                   `bson:"lease"`   // the entry that is one
	Servers map[string]bson.DateTime `bson:"servers"` // when each of those on the database last said so, by its clock
}

// clockEntry is for commits in flight: for a life after Since they may be sent, and then run for as long.
type clockEntry struct {
	From  driver.Instant `bson:"from"`  // no time of it is before
	Since bson.DateTime  `bson:"since"` // the database's clock when it was made, or renewed
	Ms    int64          `bson:"ms"`    // two lives
}

const clockID = "clock"

func msOf(life time.Duration) int64 { return 2 * (life.Milliseconds() + 1) }

func (e clockEntry) life() time.Duration { return time.Duration(e.Ms) * time.Millisecond / 2 }

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
	run   time.Duration  // its life: how long what it sends may take there
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
	begun time.Duration // before the edit that made or renewed it
}

// timing is what the protocol rests on. Only tests choose another one.
type timing struct {
	life  time.Duration // of a small write
	skew  time.Duration // how far the clocks of the members of a replica set are apart at most
	renew time.Duration // between two edits of a server that has nothing to do
}

var usual = timing{life: 1500 * time.Millisecond, skew: maxAhead, renew: 500 * time.Millisecond}

const (
	// maxAhead is how far an instant may be ahead of the database's clock, but for the one that
	// follows the last.
	maxAhead = 500 * time.Millisecond
	// longestLife bounds the life of a write, unless that of the first attempt is a large
	// part of it, and how long one command on the clock document may take.
	longestLife = 10 * time.Second
	// The pauses between two rounds.
	firstWait = time.Millisecond
	lastWait  = 50 * time.Millisecond
)

var (
	// errEmptied: the document is not there any more.
	errEmptied = driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran; restore it, or start asof again for an empty store")
	// errNotYet: another server was first, or has to do something first.
	errNotYet = errors.New("the database, or another server, has not answered yet")
)

func instantOf(t bson.DateTime) driver.Instant    { return driver.InstantOf(t.Time()) }
func microseconds(d time.Duration) driver.Instant { return driver.Instant(d.Microseconds()) }

func newClock(s *Store, o Options) *clock {
	c := &clock{
		meta: s.meta, id: rand.Text(), wallTime: o.Clock, elapsed: o.elapsed, timing: cmp.Or(o.timing, usual), maxSkew: o.MaxSkew,
		flightsEnded: make(chan struct{}), state: new(clockState),
	}
	c.alive, c.stop = context.WithCancel(context.WithoutCancel(s.life))
	round := func(do func(context.Context) error) func() error {
		return func() error {
			ctx, done := s.causal(c.alive)
			defer done()
			return do(ctx)
		}
	}
	c.edits.run, c.looks.run = round(c.edit), round(c.look)
	return c
}

// The caller of the following eight holds the lock.

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

// commandTime is how long an edit may take: after a slow one, twice as long.
func (c *clock) commandTime() time.Duration { return max(c.timing.life, min(2*c.took, longestLife)) }

// owns reports whether an entry is this server's; "" is none's.
func (c *clock) owns(entry string) bool { return strings.HasPrefix(entry, c.id) }

// leased reports whether this server has a lease for sure.
func (c *clock) leased() bool {
	return c.lease.name != "" && c.lease.name == c.state.Lease && c.elapsed()-c.lease.begun < c.lease.life()
}

// settled reports whether no commit with a time at or before an instant can still appear.
func (c *clock) settled(at driver.Instant) bool {
	if c.owns(c.state.Lease) {
		return at <= min(c.last, c.top(c.lease.clockEntry)) && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.at <= at })
	}
	return at <= c.stable
}

// idle returns the entries of this server in which nothing is in flight any more, but for the lease.
func (c *clock) idle() (entries []string) {
	for entry := range c.state.Flights {
		if entry != c.state.Lease && c.owns(entry) && !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.entry == entry }) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// serve gives times, from least on, to the waiting flights that a grant allows.
func (c *clock) serve(g grant, least driver.Instant) {
	for _, f := range c.flights {
		if at := max(least, f.after+1); f.at == driver.Forever && at <= c.top(g.clockEntry) && f.run <= g.life() {
			f.at, f.until, f.entry = at, g.Since+bson.DateTime(f.run.Milliseconds()), g.name
			c.last, least = max(c.last, at), at+1
		}
	}
}

// observe notes what the document says, unless a later state of it is known.
func (c *clock) observe(state *clockState) {
	if state.N < c.state.N {
		return
	}
	delete(state.Servers, c.id)
	c.state, c.last = state, max(c.last, state.Last)
	if state.Lease != "" {
		return // what is in flight is not in the document
	}
	stable := state.Last
	for _, e := range state.Flights {
		stable = min(stable, e.From-1)
	}
	c.stable = max(c.stable, stable)
}

// until makes rounds until a condition holds, which is called with the lock held and the number
// of rounds that did not fail. It fails when the context ends, or a round fails for a reason that
// another attempt meets again.
func (c *clock) until(ctx context.Context, r *rounds, condition func(rounds int) bool) error {
	var reason error
	for made, wait := 0, time.Duration(0); ; wait = min(2*wait+firstWait, lastWait) {
		c.mu.Lock()
		flightsEnded, failed, holds := c.flightsEnded, c.failed, condition(made)
		c.mu.Unlock()
		if holds {
			return nil
		}
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-flightsEnded:
			case <-ctx.Done():
			}
		}
		err := r.do(ctx)
		switch {
		case ctx.Err() != nil:
			return driver.Errorf(driver.CodeUnavailable, "%v: the time was up: %w", disagreement(cmp.Or(reason, failed, errNotYet)), ctx.Err())
		case err == nil:
			made++
		case !passes(err) && !errors.Is(err, errNotYet):
			return disagreement(err)
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
	return c.until(ctx, &c.edits, func(int) bool {
		c.renew = true
		return c.now > end
	})
}

// acknowledge returns when a commit that has ended may be acknowledged: when every instant
// that any server hands out from then on is at its time or later.
func (c *clock) acknowledge(ctx context.Context, at driver.Instant) error {
	return c.until(ctx, &c.edits, func(int) bool { return c.settled(at) })
}

// instant returns one to read at: not before any acknowledged commit, and such that none
// before it is in flight.
func (c *clock) instant(ctx context.Context) (at driver.Instant, err error) {
	err = c.until(ctx, &c.looks, func(rounds int) bool {
		if !c.leased() {
			at = c.stable
			return rounds > 0 && c.state.Lease == ""
		}
		at = min(c.present(), c.top(c.lease.clockEntry))
		for _, f := range c.flights {
			at = min(at, f.at-1)
		}
		c.last = max(c.last, at)
		return true
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
	if err != nil {
		return err
	}
	if at > present {
		return invalidf("%s is in the future; the store's clock says %s", at, present)
	}
	return c.until(ctx, &c.edits, func(int) bool {
		c.last = max(c.last, at)
		settled := c.settled(at)
		c.renew = c.renew || !settled && at > c.state.Last
		return settled
	})
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

func disagreement(err error) error { return wrap(err, "agreeing with other servers on the time") }

// decodeClock returns what a command about the document answers; nil where it found none.
func decodeClock(raw bson.Raw, err error) (*clockState, error) {
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state := new(clockState)
	err = bson.Unmarshal(raw, state)
	latest := state.Last
	for _, e := range state.Flights {
		latest = max(latest, e.From)
	}
	if err == nil && latest > driver.LastInstant {
		err = fmt.Errorf("it says %s, which no time can be", latest)
	}
	if err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable,
			"another program wrote into the document %q of %s (%w); stop all asof servers on the database and remove the document: asof makes it anew when it starts",
			clockID, metaName, err)
	}
	return state, nil
}

// look brings what is known of the document up to date. Under a lease it is: nobody else changes anything.
func (c *clock) look(ctx context.Context) error {
	c.mu.Lock()
	leased, own := c.leased(), c.owns(c.state.Lease)
	c.mu.Unlock()
	switch {
	case leased:
		return nil
	case own:
		return c.edits.do(ctx)
	}
	return c.read(ctx)
}

func (c *clock) read(ctx context.Context) error {
	state, err := decodeClock(c.meta.FindOne(ctx, bson.D{{Key: "_id", Value: clockID}}).Raw())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == nil {
		c.state = new(clockState) // another document begins anew
		return errEmptied
	}
	c.observe(state)
	return nil
}

// changes are those of one update of the clock document, by operator.
type changes map[string]bson.D

func (u changes) add(operator, field string, value any) {
	u[operator] = append(u[operator], bson.E{Key: field, Value: value})
}

// edit changes the document: it says that this server is there, and what has ended here; and it renews,
// takes or ends the lease, or makes an entry for the flights that wait. Where there is nothing to say, or
// another server was first (errNotYet), it reads it.
func (c *clock) edit(ctx context.Context) error {
	c.mu.Lock()
	begun, lease, u := c.elapsed(), c.state.Lease, make(changes)
	own, alone := c.owns(lease), len(c.state.Servers) == 0 && !c.left
	for entry := range c.state.Flights {
		alone = alone && c.owns(entry)
	}
	from, life, first, waits := max(c.present(), c.last+1), c.timing.life, c.last+1, false
	for _, f := range c.flights {
		life = max(life, f.run)
		if f.at == driver.Forever {
			from, waits = max(from, f.after+1), true
		} else if f.entry == lease {
			first = min(first, f.at)
		}
	}
	if !c.renew && !waits && len(c.idle()) == 0 && (!own || c.leased()) {
		c.mu.Unlock()
		if own {
			return nil
		}
		return c.read(ctx)
	}
	c.renew = false
	entry, condition := "", bson.D{{Key: "lease", Value: exists(false)}}
	switch {
	case own && alone:
		entry, life = lease, max(life, c.commandTime())
		c.lease.Ms = min(c.lease.Ms, msOf(life)) // meanwhile it allows no more than then
	case own:
		c.lease = grant{}
		u.add("$unset", "lease", "")
		u.add("$set", "flights."+lease+".from", int64(first)) // it goes on as an entry like any other
	case lease != "": // the other server sees this one, and ends it
		condition[0].Value = lease
	case alone:
		own, entry, life = true, c.id+rand.Text(), max(life, c.commandTime())
		u.add("$set", "lease", entry)
	case waits:
		entry, from = c.id+rand.Text(), max(from, min(c.last+1+c.lead, c.databaseNow()+microseconds(maxAhead)))
		condition = append(condition, bson.E{Key: "last", Value: bson.D{{Key: "$lt", Value: int64(from)}}})
	}
	if own {
		// A lease is changed only by who knows the document as it is: an edit that arrives late,
		// after others, is not carried out.
		condition = bson.D{{Key: "n", Value: c.state.N}}
	}
	if own || lease == "" { // else it is not in the way of the other server
		u.add("$inc", "n", int64(1))
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
	if err == nil && state == nil {
		err = cmp.Or(c.read(ctx), errNotYet)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took, c.failed = took, err
	if err != nil {
		if c.renew = true; errors.Is(err, errNotYet) {
			c.failed, c.lead = nil, max(2*c.lead, microseconds(took))
		}
		return err
	}
	c.lead, c.now, c.heard = 0, instantOf(state.Now), c.elapsed()
	c.observe(state)
	if entry != "" {
		g := grant{clockEntry: state.Flights[entry], name: entry, begun: begun}
		if state.Lease == entry {
			c.lease, from = g, max(c.present(), c.last+1)
		}
		c.serve(g, from)
	}
	if c.owns(state.Lease) && len(state.Servers) > 0 || len(c.idle()) > 0 {
		c.renew = true
		c.edits.ask()
	}
	return nil
}

// evict removes the entries of servers that are gone. First it withdraws their transactions, which
// waits for those that are about to be committed; so it runs beside edit.
func (c *clock) evict(ctx context.Context) error {
	c.mu.Lock()
	state, now, timeout := c.state, c.now, c.commandTime()
	c.mu.Unlock()
	for entry, e := range state.Flights {
		if c.owns(entry) || now <= c.gone(e) {
			continue
		}
		step, cancel := context.WithTimeout(ctx, timeout)
		if deleteNotes(step, c.meta, notesOf(entry)) == nil { // else it is tried again
			// Some servers keep a time more exactly than they tell it.
			condition := bson.D{{Key: "_id", Value: clockID}, {Key: "flights." + entry + ".since", Value: bson.D{{Key: "$lt", Value: e.Since + 1}}}}
			u := make(changes)
			u.add("$inc", "n", int64(1))
			u.add("$unset", "flights."+entry, "")
			u.add("$max", "last", int64(c.top(e))) // instants up to there may have been handed out
			if entry == state.Lease {
				condition = append(condition, bson.E{Key: "lease", Value: entry})
				u.add("$unset", "lease", "")
			}
			_, _ = c.meta.UpdateOne(step, condition, u)
		}
		cancel()
	}
	return nil
}

// open makes this server one of those on the database. known is the time of the last version.
func (c *clock) open(ctx context.Context, known driver.Instant) error {
	_, err := c.meta.InsertOne(ctx, bson.D{{Key: "_id", Value: clockID}, {Key: "last", Value: int64(known)}, {Key: "now", Value: bson.DateTime(0)}, {Key: "n", Value: int64(0)}})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return err
	}
	c.last = known
	return c.say(ctx) // which another server's are before
}

// run edits the document from time to time, until the store is closed: the lease is renewed, or
// taken when other servers have left, and others see that this one is there.
func (c *clock) run() {
	for _, do := range []func(context.Context) error{c.say, c.evict} {
		c.loops.Go(func() {
			for pause(c.alive, c.timing.renew); c.alive.Err() == nil; pause(c.alive, c.timing.renew) {
				_ = do(c.alive) // it is tried again
			}
		})
	}
}

// say makes an edit, whether or not there is anything new. It fails where the database refuses it.
func (c *clock) say(ctx context.Context) error {
	c.mu.Lock()
	c.renew = true
	c.mu.Unlock()
	err := c.edits.do(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		err = cmp.Or(c.failed, err)
	}
	if errors.Is(err, errNotYet) {
		return nil
	}
	return disagreement(err)
}

// leave is called when nothing of this server is under way any more. What may still be
// carried out stays in flight until others evict it, and so does all, where they are not told.
func (c *clock) leave(ctx context.Context) {
	c.mu.Lock()
	left := c.left
	c.left, c.renew = true, true
	c.mu.Unlock()
	if !left {
		_ = c.until(ctx, &c.edits, func(rounds int) bool { return rounds > 0 })
	}
	c.stop()
	c.loops.Wait()
}

// rounds runs a function for all callers that ask before it begins. Runs do not overlap.
type rounds struct {
	run     func() error
	asked   singleflight.Group
	running sync.Mutex
}

func (r *rounds) ask() <-chan singleflight.Result {
	return r.asked.DoChan("", func() (any, error) {
		r.running.Lock()
		defer r.running.Unlock()
		r.asked.Forget("") // who asks from now on waits for the next one
		return nil, r.run()
	})
}

// do waits for a round that begins after the call, and returns its error, or that of the context.
func (r *rounds) do(ctx context.Context) error {
	select {
	case ended := <-r.ask():
		return ended.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}
