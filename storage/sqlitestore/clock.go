package sqlitestore

import (
	"context"
	"sync"
	"time"

	"github.com/asof/asof/storage/driver"
)

// clock hands out commit times and instants to read at, such that neither
// ever overtakes the other: a commit gets a time greater than every instant
// that a reader was given, and a reader is never given an instant at which a
// commit in flight may still appear.
type clock struct {
	now func() time.Time

	mu     sync.Mutex
	last   driver.Instant // the greatest instant ever handed out, to either side
	lease  lease          // covers those that readers were given
	flight driver.Instant // the first time of the batch in flight; 0: none
	landed chan struct{}  // closed when the batch in flight has landed
	// stopped is set when the store closes: nobody is given an instant after
	// the last one any more.
	stopped bool
}

func newClock(now func() time.Time, last driver.Instant) *clock {
	return &clock{now: now, last: last}
}

// wall is what the time source says.
func (c *clock) wall() driver.Instant { return driver.InstantOf(c.now()) }

// present is the latest instant that is not in the future.
func (c *clock) present() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.last, c.wall())
}

// read returns a stable instant: nothing will be committed at or before it.
func (c *clock) read() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.flight - 1
	if c.flight == 0 {
		if !c.stopped {
			c.last = max(c.last, c.wall())
		}
		at = c.last
	}
	c.cover(at)
	return at
}

// takeOff starts a batch. The times of its commits follow from next.
func (c *clock) takeOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight = max(c.wall(), c.last+1)
	c.last = c.flight - 1
	c.landed = make(chan struct{})
}

// next returns the time of the next commit of the batch in flight.
func (c *clock) next() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

// land ends a batch, whether it was committed or not.
func (c *clock) land() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight = 0
	close(c.landed)
}

// stop returns the greatest instant that anyone was given, or will be.
func (c *clock) stop() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	return c.last
}

// saw makes later commit times greater than a time that was loaded.
func (c *clock) saw(t driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, t)
}

// cover makes the lease cover an instant that a reader is about to be given.
// The caller holds the lock.
func (c *clock) cover(t driver.Instant) {
	if t > c.lease.until {
		c.lease.extend(max(t, c.wall()+leaseAhead))
	}
}

// end gives the lease up, when the tables have the latest instant.
func (c *clock) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lease.end()
}

// settle waits until t is stable, see driver.Engine.Settle.
func (c *clock) settle(ctx context.Context, t driver.Instant) error {
	for {
		c.mu.Lock()
		if t <= c.last && (c.flight == 0 || t < c.flight) {
			c.cover(t)
			c.mu.Unlock()
			return nil
		}
		wall := c.wall()
		if t > wall && t > c.last {
			c.mu.Unlock()
			return invalidf("%s is in the future; the store's clock says %s", t, max(wall, c.last))
		}
		if c.stopped {
			c.mu.Unlock()
			return driver.Closed()
		}
		if c.flight == 0 {
			c.last = max(c.last, t)
			c.cover(t)
			c.mu.Unlock()
			return nil
		}
		landed := c.landed
		c.mu.Unlock()
		select {
		case <-landed:
		case <-ctx.Done():
			return wrap(ctx.Err(), "waiting for commits in flight")
		}
	}
}
