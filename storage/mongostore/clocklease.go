package mongostore

import (
	"cmp"
	"context"
	"time"

	"github.com/asof/asof/storage/driver"
)

// A server holds its times by a lease: they are its own only as long as no
// other server can have taken it for dead, which is leaseBeats beats from when
// it began to make its last exchange, in whatever mode. Others wait for twice as
// many before they remove it. Whatever has a time is sent under the lease, and
// given up when that is over; it is tried again with another time, once there
// is a lease again. What the driver repeats by itself is bound in the same way.
//
// Time is measured twice, by a clock that never goes back and by that of the
// wall: the first one stands still while a machine is suspended, the second one
// may be set. Whichever moved further counts.

// moment is when an exchange began.
type moment struct {
	elapsed time.Duration
	wall    time.Time
}

func (c *clock) moment() moment {
	return moment{c.elapsed(), c.wallTime().Round(0)} // without what else Go measures by
}

// confirm notes that an exchange was made that had begun at a moment.
func (c *clock) confirm(began moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.confirmed, c.leased = began, true
}

// left is how long the lease still lasts. The caller holds the lock.
func (c *clock) left() time.Duration {
	if !c.leased {
		return 0
	}
	now := c.moment()
	return c.term - max(now.elapsed-c.confirmed.elapsed, now.wall.Sub(c.confirmed.wall))
}

// isLeased is whether there is a lease, which may be lost.
func (c *clock) isLeased() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left() > 0
}

// errNotNow: there is no lease now, or no other right to what is to be sent.
func errNotNow() error {
	return driver.Errorf(driver.CodeUnavailable, "the database has not heard of this server for a while, so that others may take it for dead; try again")
}

// errDead: the time, or the exclusion, is one that this server had before others
// took it for dead.
var errDead = driver.Errorf(driver.CodeUnavailable, "this server was taken for dead by another one on the same database, and has come in again; try again")

// flightLeft is how long what has a time may still be sent; an error says that it may not be.
func (c *clock) flightLeft(at driver.Instant) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.flies(at) {
		return 0, errDead
	}
	return c.leaseLeft()
}

// exclusionLeft is how long what nobody else may commit beside may still be
// sent; an error says that it may not be. life is the one in which others were excluded.
func (c *clock) exclusionLeft(life string) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life != life {
		return 0, errDead
	}
	if c.mode != alone && (c.mode != shared || !c.claimed) {
		return 0, errNotNow()
	}
	return c.leaseLeft()
}

func (c *clock) leaseLeft() (time.Duration, error) {
	left := c.left()
	if left <= 0 {
		if err := cmp.Or(c.tooSlow(c.flightTerm()), c.refusal()); err != nil {
			return 0, err
		}
		return 0, errNotNow()
	}
	return left, nil
}

// held is a context for commands that may be sent only as long as something
// holds. The driver asks for the deadline each time before it sends a command,
// also where it repeats one by itself, and sends nothing that is late.
type held struct {
	context.Context
	left func() (time.Duration, error)
}

// Deadline implements context.Context.
func (h held) Deadline() (time.Time, bool) {
	if _, err := h.left(); err != nil {
		return time.Unix(1, 0), true // long ago
	}
	return h.Context.Deadline()
}

// bind bounds one command by what is left when it begins, which the database is told.
func bind(ctx context.Context, left func() (time.Duration, error)) (context.Context, context.CancelFunc, error) {
	d, err := left()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	return held{ctx, left}, cancel, nil
}

// keep is bind for commands that may take longer than a lease: they end when
// nothing is left.
func keep(ctx context.Context, left func() (time.Duration, error)) (context.Context, context.CancelFunc, error) {
	d, err := left()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for ; err == nil; d, err = left() {
			pause(ctx, d)
			if ctx.Err() != nil {
				return
			}
		}
		cancel()
	}()
	return held{ctx, left}, cancel, nil
}

// freshShare is the part of a lease, one in so many, that is left to a command of a
// load at least.
const freshShare = 2

// freshen waits until there is enough left for such a command, or as much as there
// can be, or nothing.
func (f *fleet) freshen(ctx context.Context, left func() (time.Duration, error)) error {
	for last := f.clock.term; ; {
		d, err := left()
		if err != nil || d >= f.clock.term/freshShare || d > last {
			return err
		}
		last = d
		pause(ctx, min(d, f.every/joinPolls))
		if err := ctx.Err(); err != nil {
			return driver.Errorf(driver.CodeUnavailable, "waiting for the database's clock: the time was up: %w", err)
		}
	}
}
