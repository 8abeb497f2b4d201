package mongostore

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// patience is how long one command of a kind about the clock document may take before it
// is given up, and repeated by way of another connection: less than a lease, as
// long as there is one to lose. A command that began without a lease and was not
// answered in time gives the next one twice as long, so that a database for which
// that is too short is heard all the same; one that is answered as soon as it
// should be ends that.
type patience struct {
	least, most time.Duration
	elapsed     func() time.Duration
	leased      func() bool

	mu  sync.Mutex
	now time.Duration // 0: least
}

// try runs one command.
func (p *patience) try(ctx context.Context, command func(context.Context) error) error {
	p.mu.Lock()
	given := max(p.least, p.now)
	p.mu.Unlock()
	leased, began := p.leased(), p.elapsed()
	bounded, cancel := context.WithTimeout(ctx, given)
	defer cancel()
	err := command(bounded)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		if took := p.elapsed() - began; took < p.least {
			p.now = 0
		} else {
			p.now = min(p.now, 2*took) // what the database needs, and not what an outage needed
		}
	case !leased && ctx.Err() == nil && unanswered(err):
		p.now = min(p.most, max(p.now, 2*given))
	}
	return err
}

// unanswered reports whether a command was sent, and its time was up.
func unanswered(err error) bool { return mongo.IsTimeout(err) && !isNeverSent(err) }

// slowBeats is for how many beats a database must have been too slow before those
// who wait for its clock are told so.
const slowBeats = 20

// leastSlow is how many exchanges in a row must have been: one alone is as slow where
// this process, or its machine, stood still for as long, which is no fault of the
// database's.
const leastSlow = 2

// noteSlow notes how long an exchange took, or when it was given up. As long as
// exchanges take longer than a lease lasts, there is none.
func (c *clock) noteSlow(took time.Duration, made bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case took >= c.flightTerm():
		c.slow = took
		c.slows++
		c.broadcast()
	case made:
		c.slow, c.slows, c.quick = 0, 0, c.elapsed()
	}
}

// flightTerm is what an exchange must be quicker than so that a commit may take
// off afterwards.
func (c *clock) flightTerm() time.Duration { return c.term - c.term/leastShare }

// tooSlow is what those are told who wait for exchanges that are made in less than
// some time, where the database has needed longer for each of them for a while.
// The caller holds the lock.
func (c *clock) tooSlow(than time.Duration) error {
	if c.slow < than || c.slows < leastSlow || c.elapsed()-c.quick < c.grace {
		return nil
	}
	return driver.Errorf(driver.CodeUnavailable,
		"the MongoDB server is too slow: to change one small document of %s, acknowledged by a majority, takes %v or more, and asof needs that in less than %v; look at its disk, at what else it does, and at how far the members of the replica set are behind",
		metaName, c.slow.Round(100*time.Millisecond), than)
}

// tooSlow says that the database is too slow for commits, where it has been for a while.
func (f *fleet) tooSlow() error {
	f.clock.mu.Lock()
	defer f.clock.mu.Unlock()
	return f.clock.tooSlow(f.clock.flightTerm())
}
