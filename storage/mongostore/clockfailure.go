package mongostore

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// A server whose exchanges fail has no lease after a while, and hands out nothing.
// Those who wait for it are told why: at once where the database refuses the
// exchange for a reason that does not go away by itself, such as a full disk or a
// right that was taken away; else when their time is up, since another primary may be
// elected until then.

// noteFailure notes how the last exchange ended. Those who wait are told where it was
// due: most of them ask for another one when they are woken, which would follow at once
// on each that a database refuses without delay.
func (c *clock) noteFailure(err error, due bool) {
	if errors.Is(err, errUnmet) {
		err = nil // it was answered
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed, c.fails = wrap(err, "telling other servers that this one is there"), c.fails+1
	if err == nil {
		c.fails = 0
	} else if due {
		c.broadcast()
	}
}

// timeUp is the error of who waited for the clock until its context ended. The
// caller does not hold the lock.
func (c *clock) timeUp(ctx context.Context) error {
	c.mu.Lock()
	failed := c.failed
	c.mu.Unlock()
	if failed == nil {
		return driver.Errorf(driver.CodeUnavailable, "waiting for the database's clock: the time was up: %w", ctx.Err())
	}
	return driver.Errorf(driver.CodeUnavailable, "waiting for the database's clock (%v): the time was up: %w", failed, ctx.Err())
}

// awaitTurn is await for what comes only if something can be written, such as the turn of
// a load. The caller holds the lock, and has it again afterwards.
func (c *clock) awaitTurn(ctx context.Context) error {
	if err := c.refusal(); err != nil {
		return err
	}
	return c.await(ctx)
}

// refusal is what those are told who need not wait any longer; nil: they should.
// The caller holds the lock.
func (c *clock) refusal() error {
	switch {
	case c.emptied:
		return errEmptied
	case c.failed == nil || c.left() > 0 || !staysRefused(c.failed):
		return nil
	default:
		return c.failed
	}
}

// refused is refusal for those who do not hold the lock.
func (c *clock) refused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal()
}

// For how many beats, and exchanges, a database must have been out of reach before nobody
// waits for it any longer: another primary is elected in less (12 s, by default). One
// exchange alone fails as well where this machine stood still.
const (
	awayBeats = 30
	awayFails = 2
)

// away is what those are told who would wait for a database that has been out of reach
// for so long that it will hardly be back in time; nil: they should. Loads wait all the
// same. The caller holds the lock.
func (c *clock) away() error {
	gone := c.elapsed() - c.quick
	if c.fails < awayFails || c.left() > 0 || gone < c.grace*awayBeats/slowBeats || !isUnreachable(c.failed) {
		return nil
	}
	// What it wraps is that the time of an exchange was up, not that of a request.
	return driver.Errorf(driver.CodeUnavailable, "the MongoDB server has been out of reach for %v: %v", gone.Round(time.Second), c.failed)
}

// isAway is away for those who do not hold the lock.
func (c *clock) isAway() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away()
}

// passing are the codes of errors that end when there is a primary again; see refusals.
var passing = [...]int{10107, 13435, 13436, 10058, 91, 189, 11600, 11602, 94}

// staysRefused reports whether an error is an answer that stays the same until somebody
// does something about it.
func staysRefused(err error) bool {
	if _, wrong := errors.AsType[spoiledError](err); wrong {
		return true
	}
	var server mongo.ServerError
	if !errors.As(err, &server) || mongo.IsTimeout(err) || mongo.IsNetworkError(err) {
		return false
	}
	return !slices.ContainsFunc(retryLabels[:], server.HasErrorLabel) && !server.HasErrorLabel("NoWritesPerformed") &&
		!slices.ContainsFunc(passing[:], server.HasErrorCode)
}

// stuck is why nothing can be written, and by a server that is alone nothing read;
// nil while this server has a lease.
func (f *fleet) stuck() error {
	c := f.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left() > 0 {
		return nil
	}
	return c.failed
}
