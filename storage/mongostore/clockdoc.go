package mongostore

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// The clock document is what the servers on a database agree by:
//
//	{_id: "clock", last, acked, now, n, flights: {<entry>: {from, since, ms}}, hold: {id, floor, since, ms}, sharing: [servers]}
//
// last is at least the time of every commit so far; times are taken by a change on
// condition that it is less than the first of them. Nobody reads before acked: commits up
// to it were acknowledged while others were in flight before them. A flight's commits are at from or
// later; since is when it began, and ms for how long from then on something of it may
// be carried out, both by the database's clock. hold says which server hands out
// instants up to floor by itself, and sharing which servers do not want that. now is
// the database's clock at the last change, and n counts them.
const clockID = "clock"

type clockState struct {
	Last    driver.Instant        `bson:"last"`
	Acked   driver.Instant        `bson:"acked"`
	Now     bson.DateTime         `bson:"now"`
	N       int64                 `bson:"n"`
	Flights map[string]clockEntry `bson:"flights"`
	Hold    *clockEntry           `bson:"hold"`
	Sharing []string              `bson:"sharing"`
}

// clockEntry is a flight or a hold.
type clockEntry struct {
	ID    string         `bson:"id"`    // of a hold
	From  driver.Instant `bson:"from"`  // of a flight
	Floor driver.Instant `bson:"floor"` // of a hold
	Since bson.DateTime  `bson:"since"`
	Ms    int64          `bson:"ms"`
}

// spoiledError: another program wrote into the clock document. Nothing is handed out, until
// somebody does something about it.
type spoiledError struct{ error }

func (e spoiledError) Unwrap() error { return e.error }

func decodeClock(raw bson.Raw) (*clockState, error) {
	state := new(clockState)
	if err := bson.Unmarshal(raw, state); err != nil {
		return nil, spoiledError{driver.Errorf(driver.CodeUnavailable,
			"another program wrote into the document %q of %s (%w); stop all asof servers on the database and remove the document: asof makes it anew when it starts",
			clockID, metaName, err)}
	}
	return state, nil
}

var (
	// errEmptied: the document was there, and is not any more.
	errEmptied = driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran; restore it, or start asof again for an empty store")
	// errHeld: another server holds the clock, and was asked to end that.
	errHeld = errors.New("another server holds the clock")
)

// edit is a change of the document.
type edit struct{ set, unset, most, date, add, pull bson.D }

func (e *edit) update() bson.D {
	e.date = append(e.date, bson.E{Key: "now", Value: true})
	update := bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}
	for _, part := range []struct {
		name   string
		fields bson.D
	}{{"$set", e.set}, {"$unset", e.unset}, {"$max", e.most}, {"$currentDate", e.date}, {"$addToSet", e.add}, {"$pull", e.pull}} {
		if part.fields != nil {
			update = append(update, bson.E{Key: part.name, Value: part.fields})
		}
	}
	return update
}

func (e *edit) remove(field string) { e.unset = append(e.unset, bson.E{Key: field, Value: ""}) }

func flightField(entry, field string) string { return "flights." + entry + "." + field }

// where selects the document on conditions.
func where(conditions ...bson.E) bson.D {
	return append(bson.D{{Key: "_id", Value: clockID}}, conditions...)
}

func unheld() bson.E                { return bson.E{Key: "hold", Value: exists(false)} }
func (c *clock) heldByThis() bson.E { return bson.E{Key: "hold.id", Value: c.hold} }

// change makes a change where a condition holds, and returns what the document says
// then; nil where it does not hold. It is given up after twice as long as the last one
// took, so that a database that is slow is heard all the same.
func (c *clock) change(ctx context.Context, condition bson.D, e edit, o ...options.Lister[options.FindOneAndUpdateOptions]) (*clockState, error) {
	ctx, done := c.causal(ctx)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, max(c.timing.life, min(2*c.took, longestLife)))
	defer cancel()
	began := c.moment()
	raw, err := c.meta.FindOneAndUpdate(ctx, condition, e.update(),
		append(o, options.FindOneAndUpdate().SetReturnDocument(options.After))...).Raw()
	after := c.moment()
	c.took = after.elapsed - began.elapsed
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state, err := decodeClock(raw)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(state.Now, began, after)
	c.observe(state)
	if state.Hold != nil && state.Hold.ID == c.hold && state.Hold.Since != c.since { // this renewed it
		c.since, c.begun = state.Hold.Since, began
	}
	return state, nil
}

// tell notes what the database's clock says, and whether it is too far from this
// machine's. The caller holds the lock.
func (c *clock) tell(now bson.DateTime, began, after moment) {
	// It said so at some time between the two; what was known before may tell when.
	least := instantOf(now)
	most := least + driver.Instant((after.elapsed - began.elapsed).Microseconds())
	c.now = min(max(least, c.now+driver.Instant((after.elapsed-c.heard.elapsed).Microseconds())), most)
	c.heard = after
	if c.maxSkew == 0 {
		return
	}
	var apart error
	if err := compareClocks(began.wall, now.Time(), after.wall, c.maxSkew); err != nil {
		apart = err
	}
	switch {
	case apart != nil && c.apart == nil:
		c.logger.Error("nothing is written until the clocks agree", "error", apart)
	case apart == nil && c.apart != nil:
		c.logger.Info("the clocks agree again")
	}
	c.apart = apart
}

// compareClocks says that this machine's clock, which was read before and after
// the database's, is further from it than a bound; nil where it is not.
func compareClocks(before, server, after time.Time, bound time.Duration) error {
	if early, late := before.Sub(server), server.Sub(after); early <= bound && late <= bound {
		return nil
	}
	return driver.Errorf(driver.CodeUnavailable,
		"the clocks are too far apart: this machine's says %s, that of the MongoDB server %s, and the bound is %v; synchronize them (NTP)",
		before.UTC().Format(time.RFC3339Nano), server.UTC().Format(time.RFC3339Nano), bound)
}

// observe takes a state of the document into account, which may be an old one. The
// caller holds the lock.
func (c *clock) observe(state *clockState) {
	stable := state.Last
	c.seen = make(map[string]clockEntry, len(state.Flights)+1)
	for name, e := range state.Flights {
		stable = min(stable, e.From-1)
		c.seen["flights."+name] = e
	}
	if state.Hold != nil {
		c.seen["hold"] = *state.Hold
	}
	c.mark, c.last = max(c.mark, state.Last), max(c.last, state.Last)
	c.stable, c.ackStored = max(c.stable, stable), max(c.ackStored, state.Acked)
	if c.mode == modeShared && (c.mayHold(state) || slices.ContainsFunc(slices.Collect(maps.Values(c.seen)), c.expired)) {
		c.poke()
	}
	c.broadcast()
}

// expired reports whether an entry's server has left it behind, as it seems here. The caller
// holds the lock.
func (c *clock) expired(e clockEntry) bool {
	return (e.ID == "" || e.ID != c.hold) && c.now+driver.Instant(c.past(c.heard).Microseconds()) > c.endOf(e)
}

// endOf is when, by the database's clock, nothing can be carried out any more that rests on
// an entry.
func (c *clock) endOf(e clockEntry) driver.Instant {
	return instantOf(e.Since) + driver.Instant(1000*e.Ms+c.timing.skew.Microseconds())
}

// evict removes entries of servers that are gone, where the database's clock says that
// nothing can be carried out any more that rests on them.
func (c *clock) evict(ctx context.Context) error {
	c.mu.Lock()
	left := maps.Clone(c.seen)
	maps.DeleteFunc(left, func(_ string, e clockEntry) bool { return !c.expired(e) })
	c.mu.Unlock()
	for name, e := range left {
		gone := edit{most: bson.D{{Key: "last", Value: int64(max(e.Floor, e.From))}, {Key: "acked", Value: int64(e.Floor)}}} // a hold's server may have acknowledged up to there
		gone.remove(name)
		if _, err := c.change(ctx, where(
			// Its time is one of milliseconds, as it came.
			bson.E{Key: name + ".since", Value: bson.D{{Key: "$gte", Value: e.Since}, {Key: "$lt", Value: e.Since + 1}}}, bson.E{Key: name + ".ms", Value: e.Ms},
			bson.E{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$$NOW", bson.NewDateTimeFromTime(c.endOf(e).Time())}}}},
		), gone); err != nil {
			return err
		}
	}
	return nil
}

// read reads the document.
func (c *clock) read(ctx context.Context) (*clockState, error) {
	ctx, done := c.causal(ctx)
	defer done()
	raw, err := c.meta.FindOne(ctx, where()).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, errEmptied
	}
	if err != nil {
		return nil, err
	}
	state, err := decodeClock(raw)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(state)
	return state, nil
}

// poke asks for a change though there may be nothing to change. The caller holds the lock.
func (c *clock) poke() {
	c.poked = true
	c.kick()
}

// open makes this server one of those on the database. known is the time of the last
// version. Then run has to run.
func (c *clock) open(ctx context.Context, known driver.Instant) error {
	come := edit{most: bson.D{{Key: "last", Value: int64(known)}}, add: bson.D{{Key: "sharing", Value: c.id}}}
	state, err := c.change(ctx, where(), come, options.FindOneAndUpdate().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) { // another server has just made it
		state, err = c.change(ctx, where(), come)
	}
	switch {
	case err != nil:
		return err
	case state == nil:
		return errEmptied
	case c.mayHold(state):
		err = c.take(ctx, state)
	case state.Hold == nil: // who is there says so again
		_, err = c.change(ctx, where(), edit{set: bson.D{{Key: "sharing", Value: bson.A{c.id}}}})
	}
	return err
}

// ask asks the server that holds the clock to share it. Where that is this one, by a change
// that was not answered, it ends the hold.
func (c *clock) ask(ctx context.Context, state *clockState) error {
	if state.Hold.ID == c.hold {
		e := edit{most: bson.D{{Key: "last", Value: int64(state.Hold.Floor)}}}
		e.remove("hold")
		_, err := c.change(ctx, where(c.heldByThis()), e)
		return err
	}
	_, err := c.change(ctx, where(bson.E{Key: "hold", Value: exists(true)}), edit{add: bson.D{{Key: "sharing", Value: c.id}}})
	return err
}

// mayHold reports whether no other server seems to be there. The caller holds the lock.
func (c *clock) mayHold(state *clockState) bool {
	return state.Hold == nil && len(state.Flights) == 0 && !c.othersShare(state) &&
		len(c.flights)+len(c.waiting)+len(c.registered) == 0
}

func (c *clock) othersShare(state *clockState) bool {
	return slices.ContainsFunc(state.Sharing, func(id string) bool { return id != c.id })
}

// take takes a hold, unless the document is not any more as it was.
func (c *clock) take(ctx context.Context, state *clockState) error {
	c.mu.Lock()
	c.hold = rand.Text()
	life, floor := c.holdLife(), c.present()+driver.Instant(c.timing.ahead.Microseconds())
	c.mu.Unlock()
	state, err := c.change(ctx, where(unheld(), bson.E{Key: "n", Value: state.N}), edit{
		set: bson.D{
			{Key: "hold.id", Value: c.hold}, {Key: "hold.floor", Value: int64(floor)}, {Key: "hold.ms", Value: c.holdMs(life)}, {Key: "sharing", Value: bson.A{}},
		},
		date: bson.D{{Key: "hold.since", Value: true}},
	})
	if state == nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode, c.floor, c.life = modeHeld, floor, life
	c.broadcast()
	return nil
}

// holdLife is how long a hold lives: longer where the database is slow.
func (c *clock) holdLife() time.Duration {
	const renewals = 3
	return max(c.timing.hold, min(renewals*c.took, longestLife))
}

// holdMs is for how long after its renewal something may be carried out that rests on
// the hold.
func (c *clock) holdMs(life time.Duration) int64 { return (life + c.timing.life).Milliseconds() }

// run makes the changes that are due, one after the other, until the store is closed.
func (c *clock) run() {
	life := c.alive
	defer close(c.ended)
	renew := time.NewTimer(c.timing.renew)
	defer renew.Stop()
	for wait := firstLook; ; {
		select {
		case <-life.Done():
			return
		case <-c.kicked:
		case <-renew.C:
			c.mu.Lock()
			c.poked = c.poked || c.mode != modeShared || c.apart != nil
			c.mu.Unlock()
		}
		err := c.step(life)
		c.mu.Lock()
		c.changes++
		switch {
		case errors.Is(err, errHeld):
			c.poked = true
		case err == nil:
			c.failed = nil
		default:
			if c.failed == nil {
				c.away = c.elapsed()
			}
			c.failed = wrap(err, "agreeing with other servers on the time")
		}
		c.broadcast()
		c.mu.Unlock()
		if err == nil {
			wait = firstLook
		} else {
			pause(life, wait)
			wait = min(2*wait, lastLook)
			c.kick()
		}
		renew.Reset(c.timing.renew)
	}
}

// step makes what is due of changes.
func (c *clock) step(ctx context.Context) error {
	c.mu.Lock()
	mode := c.mode
	c.mu.Unlock()
	if mode == modeEnding {
		return c.handOver(ctx)
	}
	if err := c.evict(ctx); err != nil {
		return err
	}
	state, err := c.exchange(ctx, 0)
	if state == nil || err != nil {
		return err
	}
	c.mu.Lock()
	shares, may := mode == modeHeld && c.othersShare(state), c.mode == modeShared && c.mayHold(state)
	c.mu.Unlock()
	switch {
	case shares:
		return c.handOver(ctx)
	case may:
		return c.take(ctx, state)
	}
	return nil
}

// exchange takes times for those who wait, tells which flights have ended, and renews
// the hold. Without any of it, it does nothing. Where others take times meanwhile, those
// that are taken are later by a lead, which grows.
func (c *clock) exchange(ctx context.Context, lead driver.Instant) (*clockState, error) {
	c.mu.Lock()
	holds := c.mode == modeHeld
	c.waiting = slices.DeleteFunc(c.waiting, func(t *ticket) bool { return t.gone })
	batch := slices.Clone(c.waiting)
	e, registered := c.report()
	first := c.present()
	if len(batch) > 0 {
		first = max(c.last+1, min(max(first, c.last+1+lead), c.bound()))
	}
	life := c.timing.life
	for _, t := range batch {
		first, life = max(first, t.after+1), max(life, t.life)
	}
	reached := c.wanted
	if len(batch) > 0 {
		reached = max(reached, first+driver.Instant(len(batch))-1)
	}
	due := len(batch) > 0 || e.set != nil || e.unset != nil || c.poked || !holds && c.acked > c.ackStored
	if holds {
		due = due || c.wanted > c.floor || !c.leased()
	} else {
		due = due || c.wanted > c.mark
	}
	if !due {
		c.mu.Unlock()
		return nil, nil
	}
	c.poked = false
	condition := where(unheld())
	floor, holdLife := driver.Instant(0), time.Duration(0)
	if holds {
		holdLife = max(c.life, c.holdLife())
		floor = max(c.floor, max(reached, first)+driver.Instant(c.timing.ahead.Microseconds()))
		condition = where(c.heldByThis())
		e.set = append(e.set, bson.E{Key: "hold.ms", Value: c.holdMs(holdLife)})
		e.most = append(e.most, bson.E{Key: "hold.floor", Value: int64(floor)})
		e.date = append(e.date, bson.E{Key: "hold.since", Value: true})
	} else {
		e.add = bson.D{{Key: "sharing", Value: c.id}}
		e.most = c.ackEdit()
		if reached > c.mark {
			e.most = append(e.most, bson.E{Key: "last", Value: int64(reached)})
		}
	}
	entry := ""
	var flights []*flight
	if len(batch) > 0 {
		c.entries++
		entry = c.id + strconv.Itoa(c.entries)
		e.set = append(e.set, bson.E{Key: flightField(entry, "from"), Value: int64(first)}, bson.E{Key: flightField(entry, "ms"), Value: 2 * life.Milliseconds()})
		e.date = append(e.date, bson.E{Key: flightField(entry, "since"), Value: true})
		if !holds {
			condition = append(condition, bson.E{Key: "last", Value: bson.D{{Key: "$lt", Value: int64(first)}}})
		}
		for i, t := range batch {
			flights = append(flights, &flight{at: first + driver.Instant(i), run: t.life, entry: entry})
		}
		c.registered[entry] = first
		if holds { // so that nobody reads at these times meanwhile
			for _, f := range flights {
				c.depart(f)
			}
		}
	}
	c.mu.Unlock()

	began := c.elapsed()
	state, err := c.change(ctx, condition, e)
	c.mu.Lock()
	if state == nil {
		c.flights = slices.DeleteFunc(c.flights, func(f *flight) bool { return entry != "" && f.entry == entry })
		if err == nil {
			delete(c.registered, entry)
		}
		c.mu.Unlock()
		if err != nil {
			return nil, err // it may have been made: the entry is told to have ended next time
		}
		return c.missed(ctx, holds, first, max(2*lead, driver.Instant(2*(c.elapsed()-began).Microseconds())))
	}
	defer c.mu.Unlock()
	c.registered = registered
	if entry != "" {
		c.registered[entry] = first
	}
	for i, t := range batch {
		flights[i].until = state.Flights[entry].Since + bson.DateTime(t.life.Milliseconds())
		t.flight = flights[i]
		if !holds {
			c.depart(t.flight)
		}
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(t *ticket) bool { return t.flight != nil })
	for _, t := range batch {
		if t.gone {
			c.flights = slices.DeleteFunc(c.flights, func(f *flight) bool { return f == t.flight })
			c.kick()
		}
	}
	if holds {
		c.floor, c.life = floor, holdLife
	}
	c.broadcast()
	return state, nil
}

// report says which flights of this server have ended; those that are in flight still are
// told. The caller holds the lock.
func (c *clock) report() (e edit, registered map[string]driver.Instant) {
	registered = maps.Clone(c.registered)
	for entry := range c.registered {
		if !slices.ContainsFunc(c.flights, func(f *flight) bool { return f.entry == entry }) {
			e.remove("flights." + entry)
			delete(registered, entry)
		}
	}
	return e, registered
}

// missed finds out why a change was not made, and makes it where it can be now.
func (c *clock) missed(ctx context.Context, held bool, first, lead driver.Instant) (*clockState, error) {
	state, err := c.read(ctx)
	switch {
	case err != nil:
		return nil, err
	case held && (state.Hold == nil || state.Hold.ID != c.hold):
		c.logger.Warn("another server on the database took this one for gone, and shares its times with it from now on")
		c.lose(state)
		return nil, errHeld
	case !held && state.Hold != nil:
		if err := c.ask(ctx, state); err != nil {
			return nil, err
		}
		return nil, errHeld
	case state.Last >= first || held:
		return c.exchange(ctx, lead)
	}
	return c.exchange(ctx, 0) // what was in the way is gone
}

// lose goes over to sharing. What was in flight under the hold is refused by the
// database, or others wait for it.
func (c *clock) lose(state *clockState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	registered := make(map[string]driver.Instant)
	for name, e := range state.Flights {
		if name == c.hold || strings.HasPrefix(name, c.id) {
			registered[name] = e.From
		}
	}
	for _, f := range c.flights {
		if _, known := registered[f.entry]; !known {
			f.entry = ""
		}
	}
	c.mode, c.hold, c.registered = modeShared, "", registered
	c.observe(state)
}

// handOver ends the hold, so that this server shares the clock from then on. What is in
// flight under the hold is told as a flight.
func (c *clock) handOver(ctx context.Context) error {
	c.mu.Lock()
	c.mode = modeEnding
	e := c.endHold()
	e.add = bson.D{{Key: "sharing", Value: c.id}}
	c.mu.Unlock()
	state, err := c.change(ctx, where(c.heldByThis()), e)
	if err != nil {
		return err
	}
	if state == nil { // it was made before, without an answer, or others evicted it
		if state, err = c.read(ctx); err != nil {
			return err
		}
	}
	c.lose(state)
	return nil
}

// ackEdit tells what was acknowledged. The caller holds the lock.
func (c *clock) ackEdit() bson.D {
	if c.acked <= c.ackStored {
		return nil
	}
	return bson.D{{Key: "acked", Value: int64(c.acked)}}
}

// endHold is the change that ends a hold. The caller holds the lock.
func (c *clock) endHold() edit {
	from := driver.Instant(0)
	for _, f := range c.flights {
		if f.entry == "" || f.entry == c.hold {
			f.entry = c.hold
			if from == 0 || f.at < from {
				from = f.at
			}
		}
	}
	e, _ := c.report()
	e.remove("hold")
	e.most = append(c.ackEdit(), bson.E{Key: "last", Value: int64(c.last)})
	if from > 0 {
		e.set = append(e.set, bson.E{Key: "flights." + c.hold, Value: bson.D{
			{Key: "from", Value: int64(from)}, {Key: "since", Value: c.since}, {Key: "ms", Value: c.holdMs(c.life)},
		}})
	}
	return e
}

// leave is called when nothing of this server is under way any more. What may still be
// carried out stays in flight, until others evict it.
func (c *clock) leave(ctx context.Context) error {
	c.stop()
	<-c.ended
	c.mu.Lock()
	if c.left {
		c.mu.Unlock()
		return nil
	}
	condition := where()
	var e edit
	if c.mode == modeShared {
		e, _ = c.report()
	} else {
		condition = where(c.heldByThis())
		e = c.endHold()
	}
	e.pull = bson.D{{Key: "sharing", Value: c.id}}
	c.mu.Unlock()
	return persist(ctx, func() error {
		_, err := c.change(ctx, condition, e)
		return err
	})
}

// look reads the document for all who ask at the same time, by a question that was put
// after they asked. It is not known what the instant to read at is where another server
// holds the clock.
type look struct {
	done  chan struct{}
	known bool
	err   error
}

// How long who waits for other servers pauses between two questions.
const (
	firstLook = time.Millisecond
	lastLook  = 50 * time.Millisecond
)

func (c *clock) look(ctx context.Context) (known bool, err error) {
	c.mu.Lock()
	l := c.next
	if l == nil {
		l = &look{done: make(chan struct{})}
		c.next = l
		if !c.looking {
			c.looking = true
			go c.answer()
		}
	}
	c.mu.Unlock()
	select {
	case <-l.done:
		return l.known, l.err
	case <-ctx.Done():
		return false, driver.Errorf(driver.CodeUnavailable, "asking for the database's clock: the time was up: %w", ctx.Err())
	}
}

// answer answers those who look, until there are none.
func (c *clock) answer() {
	for {
		c.mu.Lock()
		l := c.next
		c.next, c.looking = nil, l != nil
		c.mu.Unlock()
		if l == nil {
			return
		}
		ctx, cancel := context.WithTimeout(c.alive, longestLife)
		var state *clockState
		err := persist(ctx, func() (err error) {
			state, err = c.read(ctx)
			return err
		})
		cancel()
		l.known = err == nil && state.Hold == nil
		l.err = wrap(err, "asking for the database's clock")
		if err == nil && !l.known {
			c.mu.Lock()
			c.poke()
			c.mu.Unlock()
		}
		close(l.done)
	}
}
