package mongostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

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
}

const clockID = "clock"

// decodeClock returns what a command about the document answers; nil where it found none.
func decodeClock(raw bson.Raw, err error) (*clockState, error) {
	if err != nil {
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = nil
		}
		return nil, err
	}
	state := new(clockState)
	err = bson.Unmarshal(raw, state)
	latest := max(state.Last, state.Acked)
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

// changes are those of one update of the clock document, by operator.
type changes map[string]bson.D

func (u changes) add(operator, field string, value any) {
	u[operator] = append(u[operator], bson.E{Key: field, Value: value})
}

// change changes the document where a condition holds, and returns what it says then; nil
// where the condition does not hold. It ends after commandTime.
func (c *clock) change(ctx context.Context, condition bson.D, u changes) (*clockState, error) {
	ctx, done := c.causal(ctx)
	defer done()
	c.mu.Lock()
	timeout := c.commandTime()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	u.add("$currentDate", "now", true)
	began := c.elapsed()
	state, err := decodeClock(c.meta.FindOneAndUpdate(ctx, condition, u, options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took = c.elapsed() - began; state != nil {
		c.now, c.heard = instantOf(state.Now), c.elapsed()
		c.observe(state)
	}
	return state, err
}

// observe notes what the document says, unless a later state of it is known. The caller holds
// the lock.
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

// read reads the document.
func (c *clock) read(ctx context.Context) error {
	ctx, done := c.causal(ctx)
	defer done()
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

// edit changes the document: it says that this server is there, and what has ended here; it evicts
// entries of servers that are gone; and it renews, takes or ends the lease, or makes an entry for
// the flights that wait. It returns errNotYet where another server is in the way.
func (c *clock) edit(ctx context.Context) error {
	c.mu.Lock()
	begun, lease, lead, u := c.elapsed(), c.state.Lease, c.lead, make(changes)
	own, vacant := c.owns(lease), lease == "" && len(c.state.Servers) == 0 && !c.left
	var there bson.D // what is evicted, as it is known
	for entry, e := range c.state.Flights {
		switch {
		case c.owns(entry):
		case c.now <= c.gone(e):
			vacant = false
		case c.cleared != nil && c.cleared[entry] != e.Since:
			vacant = false
			c.clears.ask()
		default:
			u.add("$unset", "flights."+entry, "")
			there = append(there, bson.E{Key: "flights." + entry + ".since", Value: bson.D{{Key: "$lt", Value: e.Since + 1}}})
			c.last = max(c.last, c.top(e)) // instants up to there may have been handed out
			if entry == lease {
				lease, c.acked = "", max(c.acked, c.top(e)) // what was acknowledged under it may be in no document
				u.add("$unset", "lease", "")
			}
		}
	}
	from, life, first, waits := max(c.present(), c.last+1), c.timing.life, driver.Forever, false
	for _, f := range c.flights {
		life = max(life, f.run)
		if f.at == driver.Forever {
			from, waits = max(from, f.after+1), true
		} else if f.entry == lease {
			first = min(first, f.at)
		}
	}
	// On a lease nothing is changed but by who knows the document as it is: a change that
	// arrives late, after others, is not carried out.
	entry, condition, free := "", bson.E{Key: "n", Value: c.state.N}, bson.E{Key: "lease", Value: exists(false)}
	if c.state.Lease != "" {
		free.Value = c.state.Lease // it is evicted, or asked to end
	}
	switch {
	case own && (c.left || lease == c.ending || len(c.state.Servers) > 0):
		c.ending = lease // once begun, it is ended: it may have been in the document
		u.add("$unset", "lease", "")
		if first < driver.Forever { // it goes on as an entry like any other
			u.add("$set", "flights."+lease+".from", int64(first))
		}
	case own:
		entry, life = lease, max(life, c.commandTime())
		c.lease.Ms = min(c.lease.Ms, msOf(life)) // meanwhile it allows no more than then
	case lease != "": // the other server sees this one, and ends it
		condition = free
	case vacant:
		entry, life = c.id+rand.Text(), max(life, c.commandTime())
		u.add("$set", "lease", entry)
	case waits:
		entry, from = c.id+rand.Text(), max(from, min(c.last+1+lead, c.databaseNow()+microseconds(maxAhead)))
		there = append(there, bson.E{Key: "last", Value: bson.D{{Key: "$lt", Value: int64(from)}}})
		condition = free
	case !c.renew && len(there)+len(c.idle()) == 0 && c.acked <= c.state.Acked:
		c.mu.Unlock()
		return nil
	default:
		condition = free
	}
	c.renew = false
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
	c.mu.Unlock()

	state, err := c.change(ctx, append(bson.D{{Key: "_id", Value: clockID}, condition}, there...), u)
	if err == nil && (state == nil || lease != "" && !own) {
		err = cmp.Or(c.read(ctx), errNotYet)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lead, c.failed = 0, err; errors.Is(err, errNotYet) {
		if c.failed = nil; entry != "" {
			c.lead = max(2*lead, microseconds(c.elapsed()-begun))
		}
	}
	if err != nil {
		c.renew = true
		return err
	}
	if entry != "" {
		g := grant{clockEntry: state.Flights[entry], name: entry, begun: begun}
		if state.Lease == entry {
			c.lease, from = g, max(c.present(), c.last+1)
		}
		c.serve(g, from)
	}
	if own && len(c.state.Servers) > 0 || len(c.idle()) > 0 {
		c.edits.ask()
	}
	return nil
}

// clear withdraws the transactions of entries that are to be evicted. It waits for those
// that are about to be committed, and so runs beside edit.
func (c *clock) clear(ctx context.Context) error {
	c.mu.Lock()
	gone := make(map[string]bson.DateTime)
	for entry, e := range c.state.Flights {
		if !c.owns(entry) && c.now > c.gone(e) {
			gone[entry] = e.Since
		}
	}
	maps.DeleteFunc(c.cleared, func(entry string, since bson.DateTime) bool { return gone[entry] != since })
	maps.DeleteFunc(gone, func(entry string, since bson.DateTime) bool { return c.cleared[entry] == since })
	timeout := c.commandTime()
	c.mu.Unlock()
	var failed error
	for entry, since := range gone {
		step, cancel := context.WithTimeout(ctx, timeout)
		err := deleteNotes(step, c.meta, notesOf(entry))
		cancel()
		if err != nil {
			failed = err // it is tried again
			continue
		}
		c.mu.Lock()
		c.cleared[entry], c.renew = since, true
		c.mu.Unlock()
		c.edits.ask()
	}
	return failed
}

// open makes this server one of those on the database. known is the time of the last
// version. Then run has to run.
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
	}
}

// leave is called when nothing of this server is under way any more. What may still be
// carried out stays in flight, until others evict it.
func (c *clock) leave(ctx context.Context) error {
	c.mu.Lock()
	left := c.left
	c.left, c.renew = true, true
	c.mu.Unlock()
	if left {
		return nil
	}
	err := c.until(ctx, &c.edits, func(rounds int) bool { return rounds > 0 || c.state.Lease != "" && !c.owns(c.state.Lease) })
	c.stop()
	<-c.ended
	if errors.Is(err, errEmptied) {
		return nil
	}
	return err
}

// rounds runs a function for all callers that ask before it begins. Runs do not overlap.
type rounds struct {
	run     func() error
	running sync.Mutex
	mu      sync.Mutex
	next    *round // the one that has not begun yet
}

type round struct {
	done chan struct{}
	err  error // to be read when done is closed
}

func (r *rounds) ask() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		return r.next
	}
	this := &round{done: make(chan struct{})}
	r.next = this
	go func() {
		r.running.Lock()
		defer r.running.Unlock()
		r.mu.Lock()
		r.next = nil
		r.mu.Unlock()
		this.err = r.run()
		close(this.done)
	}()
	return this
}

// do waits for a round that begins after the call, and returns its error, or that of the context.
func (r *rounds) do(ctx context.Context) error {
	this := r.ask()
	select {
	case <-this.done:
		return this.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
