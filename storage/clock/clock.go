// Package clock is the clock of a store that one process writes to: it gives
// commits their times and readers the instants that they read at.
//
// No jump of the system's clock gets into it. The time of day is read once for
// good, when the store is opened, and from then on believed as long as it agrees
// with the time that has passed since, to within Bound; else what has passed is
// the time. So a clock that was a year ahead for a moment leaves no trace. One
// that was set right by more than Bound is followed when the store is opened
// again; one that was set back is followed as soon as it has caught up.
package clock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asof/asof/storage/driver"
)

// Bound is how far the time of day may be ahead of the time that has passed. An
// instant that is handed out is never further ahead of it, except by 1 µs after
// the one before.
const Bound = 500 * time.Millisecond

const bound = driver.Instant(Bound / time.Microsecond)

// Clock hands out commit times and instants to read at, such that neither
// ever overtakes the other: a commit gets a time greater than every instant
// that a reader was given, and a reader is never given an instant at which a
// commit in flight may still appear. Its methods may be called from any number
// of goroutines; one batch of commits is in flight at a time.
type Clock struct {
	opts Options
	// The time of day when the clock was made, and what had passed then.
	start  driver.Instant
	passed time.Duration

	mu         sync.Mutex
	last       driver.Instant // the greatest instant ever handed out, to either side
	covered    driver.Instant // see Options.Cover
	flight     driver.Instant // the first time of the batch in flight; 0: none
	batchEnded chan struct{}  // closed when the batch in flight has ended
	jumped     bool           // the time of day is not believed
	stopped    bool           // no instant after the last one is given any more
}

// Options are what a clock is made from.
type Options struct {
	Now func() time.Time // the time of day
	// Elapsed measures what passes, also while the machine is suspended, and is
	// never set back or forth; nil: the system's.
	Elapsed func() time.Duration
	// Last is the greatest instant that was handed out before.
	Last driver.Instant
	// Cover is called before a reader is given an instant, unless it is one up to
	// which it was called before. Nil: it is not called.
	Cover func(until driver.Instant)
	// Logger gets a line for each jump.
	Logger *slog.Logger
}

// New returns a clock.
func New(opts Options) *Clock {
	if opts.Elapsed == nil {
		opts.Elapsed = systemElapsed
	}
	if opts.Cover == nil {
		opts.Cover = func(driver.Instant) {}
	}
	return &Clock{opts: opts, start: driver.InstantOf(opts.Now()), passed: opts.Elapsed(), last: opts.Last}
}

// wall is the time of day, or what it should be where it has jumped ahead. The
// caller holds the lock.
func (c *Clock) wall() driver.Instant {
	wall := driver.InstantOf(c.opts.Now())
	expected := c.start + driver.Instant((c.opts.Elapsed()-c.passed)/time.Microsecond)
	jumped := wall > expected+bound
	if jumped != c.jumped {
		c.jumped = jumped
		if jumped {
			c.opts.Logger.Error("the system's clock jumped ahead; times go on from what it said before. If it is right now, restart the program",
				"clock", wall, "expected", expected)
		} else {
			c.opts.Logger.Info("the system's clock is as expected again")
		}
	}
	if jumped {
		return expected
	}
	return wall
}

// Present is the latest instant that is not in the future.
func (c *Clock) Present() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.last, c.wall())
}

// Now returns a stable instant: nothing will be committed at or before it.
func (c *Clock) Now() driver.Instant {
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

// Begin begins a batch of commits, whose times follow from Next.
func (c *Clock) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight = max(c.wall(), c.last+1)
	c.last = c.flight - 1
	c.batchEnded = make(chan struct{})
}

// Next returns the time of the next commit of the batch in flight.
func (c *Clock) Next() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

// End ends a batch, whether it was committed or not.
func (c *Clock) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight = 0
	close(c.batchEnded)
}

// Stop returns the greatest instant that anyone was given, or will be. Cover is
// not called any more.
func (c *Clock) Stop() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped, c.covered = true, driver.Forever
	return c.last
}

// Saw makes later commit times greater than a time that was loaded.
func (c *Clock) Saw(t driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, t)
}

// cover covers an instant that a reader is about to be given, and some time
// ahead, so that it is not called for each. The caller holds the lock.
func (c *Clock) cover(t driver.Instant) {
	if t > c.covered {
		c.covered = max(t, c.wall()+bound)
		c.opts.Cover(c.covered)
	}
}

// Settle waits until t is stable, see driver.Engine.Settle. It returns the error of
// a context that ended meanwhile.
func (c *Clock) Settle(ctx context.Context, t driver.Instant) error {
	for {
		batchEnded, err := c.settle(t)
		if err != nil || batchEnded == nil {
			return err
		}
		select {
		case <-batchEnded:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle makes t stable, or returns what has to be waited for.
func (c *Clock) settle(t driver.Instant) (wait <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t > c.last || c.flight != 0 && t >= c.flight {
		switch wall := c.wall(); {
		case t > max(wall, c.last):
			return nil, driver.Errorf(driver.CodeInvalid, "%s is in the future; the store's clock says %s", t, max(wall, c.last))
		case c.stopped:
			return nil, driver.Closed()
		case c.flight != 0:
			return c.batchEnded, nil
		}
		c.last = t
	}
	c.cover(t)
	return nil, nil
}
