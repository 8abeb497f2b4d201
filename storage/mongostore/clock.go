package mongostore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/asof/asof/storage/driver"
)

// clock hands out commit times and instants to read at, such that neither
// overtakes the other: a commit gets a time greater than every instant that a
// reader was given, and a reader is never given an instant at which a commit
// in flight may still appear.
//
// Commits fly at the same time, each with a time of its own. A commit is
// acknowledged only after all with earlier times have landed, so that an
// instant just before the first in flight is never before one that was
// acknowledged.
type clock struct {
	wallTime func() time.Time

	mu      sync.Mutex
	last    driver.Instant   // the greatest instant ever handed out, to either side
	flights []driver.Instant // times of commits in flight, ascending
	landed  chan struct{}    // closed, and replaced, when a commit lands
}

func newClock(wallTime func() time.Time, last driver.Instant) *clock {
	return &clock{wallTime: wallTime, last: last, landed: make(chan struct{})}
}

func (c *clock) wall() driver.Instant { return driver.InstantOf(c.wallTime()) }

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
	if len(c.flights) > 0 {
		return c.flights[0] - 1
	}
	c.last = max(c.last, c.wall())
	return c.last
}

// takeOff returns a commit's time, greater than after and all handed out before.
func (c *clock) takeOff(after driver.Instant) driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.wall(), c.last+1, after+1)
	c.flights = append(c.flights, c.last)
	return c.last
}

// land ends a flight whose outcome is certain.
func (c *clock) land(at driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := slices.BinarySearch(c.flights, at); ok {
		c.flights = slices.Delete(c.flights, i, i+1)
	}
	close(c.landed)
	c.landed = make(chan struct{})
}

// wait returns when no commit with a time at or before an instant is in flight.
func (c *clock) wait(ctx context.Context, at driver.Instant) error {
	for {
		c.mu.Lock()
		if len(c.flights) == 0 || at < c.flights[0] {
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

// settle makes an instant stable, see driver.Engine.Settle.
func (c *clock) settle(ctx context.Context, at driver.Instant) error {
	c.mu.Lock()
	present := max(c.last, c.wall())
	if at <= present {
		c.last = max(c.last, at)
	}
	c.mu.Unlock()
	if at > present {
		return invalidf("%s is in the future; the store's clock says %s", at, present)
	}
	return c.wait(ctx, at)
}

// handedOut returns the greatest instant that anyone was given.
func (c *clock) handedOut() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// saw makes later commit times greater than one that was read or loaded.
func (c *clock) saw(at driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, at)
}
