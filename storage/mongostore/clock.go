package mongostore

import (
	"cmp"
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
//
// How much of this other servers have to be told depends on the mode, see
// fleet.
type clock struct {
	wallTime func() time.Time
	// elapsed measures how long something takes; it never goes back.
	elapsed func() time.Duration
	// kick asks the fleet to exchange what it knows soon.
	kick func()

	mu      sync.Mutex
	life    string // what this server is called among the others, from when it came in until it is removed
	mode    mode
	last    driver.Instant   // the greatest instant handed out, to either side, or seen
	flights []driver.Instant // times of commits in flight, ascending
	changed chan struct{}    // closed, and replaced, when anything below or above changes
	unclear bool             // a commit's outcome was given up
	emptied bool             // there is no store any more: nothing is handed out
	failed  error            // why the last exchange was not made; nil: it was
	fails   int              // how many in a row were not

	// The lease: it lasts a term from when the last exchange began, if there was
	// one in this life.
	term      time.Duration
	confirmed moment
	leased    bool
	// slow is how long the last exchange took, where that is too long, and quick
	// when one last did not; for grace after that those who wait are not told.
	slow, quick time.Duration
	slows       int // how many exchanges in a row were slow
	grace       time.Duration

	// While alone: instants up to floor may be handed out.
	floor driver.Instant

	// While shared: what the clock document was last seen to say.
	mark   driver.Instant // later commits of any server get greater times
	stable driver.Instant // no other server commits at or before it
	beat   int64          // the last exchange that was taken into account
	told   driver.Instant // the lowest time in flight that others know of; 0: none

	// loading: commits wait until a load of this server has ended; so do they
	// while it completes the loads of servers that are dead. claimed: the
	// clock document says so.
	loading bool
	debts   int // deaths of servers whose loads are not completed yet
	claimed bool
	held    int // commits that waited for a load, and have no time yet

	// What the next exchange is to achieve.
	waiting []*ticket
	wanted  driver.Instant // to be at most the floor, or the mark
}

// ticket is a commit that waits for its time.
type ticket struct {
	after driver.Instant
	time  driver.Instant
	done  bool // it has its time
	gone  bool // nobody waits for it any more
	back  bool // it has to be asked for anew: a load came first

	loading bool // it is for a part of a load
}

func newClock(wallTime func() time.Time, elapsed func() time.Duration, last driver.Instant) *clock {
	return &clock{wallTime: wallTime, elapsed: elapsed, kick: func() {}, last: last, changed: make(chan struct{})}
}

func (c *clock) wall() driver.Instant { return driver.InstantOf(c.wallTime()) }

// broadcast wakes everyone who waits. The caller holds the lock.
func (c *clock) broadcast() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits for a change. The caller holds the lock, and has it again afterwards.
func (c *clock) await(ctx context.Context) error {
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return c.timeUp(ctx)
	}
}

// want asks for an instant to come within reach. The caller holds the lock.
func (c *clock) want(at driver.Instant) {
	c.wanted = max(c.wanted, at)
	c.kick()
}

// present is the latest instant that is not in the future.
func (c *clock) present() driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.last, c.wall())
}

// read returns a stable instant: nothing will be committed at or before it. In
// shared mode it is the one that is known, for those who have just looked; for
// others it is not ok.
func (c *clock) read(ctx context.Context, looked bool) (at driver.Instant, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch c.mode {
		case alone:
			at := max(c.last, c.wall())
			if len(c.flights) > 0 {
				at = c.flights[0] - 1
			}
			if at <= c.floor && c.left() > 0 {
				c.last = max(c.last, at)
				return at, true, nil
			}
			c.want(at)
			if err := cmp.Or(c.tooSlow(c.term), c.refusal(), c.away()); err != nil && c.left() <= 0 {
				return 0, false, err
			}
		case shared:
			if !looked {
				return 0, false, nil
			}
			at := c.stable
			if len(c.flights) > 0 {
				at = min(at, c.flights[0]-1)
			}
			return at, true, nil
		case joining, between:
			if err := cmp.Or(c.refusal(), c.away()); err != nil {
				return 0, false, err
			}
		}
		if err := c.await(ctx); err != nil {
			return 0, false, err
		}
	}
}

// lowest is the lowest time in flight; 0: none. The caller holds the lock.
func (c *clock) lowest() driver.Instant {
	if len(c.flights) == 0 {
		return 0
	}
	return c.flights[0]
}

// loads reports whether commits wait for a load. The caller holds the lock.
func (c *clock) loads() bool { return c.loading || c.debts > 0 }

// takeOff returns a commit's time, greater than after and all handed out
// before, when there is no load.
func (c *clock) takeOff(ctx context.Context, after driver.Instant) (driver.Instant, error) {
	return c.ticketFor(ctx, after, "")
}

// takeOffLoading is takeOff for what is part of a load, which excludes others
// since they knew this server as life.
func (c *clock) takeOffLoading(ctx context.Context, after driver.Instant, life string) (driver.Instant, error) {
	return c.ticketFor(ctx, after, life)
}

func (c *clock) ticketFor(ctx context.Context, after driver.Instant, life string) (driver.Instant, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var t *ticket
	waited := false
	pass := func() {
		if waited {
			waited = false
			c.held--
			c.broadcast()
		}
	}
	defer pass()
	for {
		switch {
		case life != "" && c.life != life:
			if t != nil {
				t.gone = true
			}
			return 0, errDead
		case t != nil && t.done:
			return t.time, nil
		case t != nil && t.back:
			t = nil
			continue
		case t != nil:
		case c.loads() && life == "":
			if !waited {
				waited = true
				c.held++
			}
		case c.mode == alone:
			at := max(c.wall(), c.last+1, after+1)
			if at <= c.floor && c.left() > c.term/leastShare {
				c.depart(at)
				return at, nil
			}
			c.want(at)
		case c.mode == shared:
			t = &ticket{after: after, loading: life != ""}
			c.waiting = append(c.waiting, t)
			pass()
			c.kick()
		}
		err := cmp.Or(c.tooSlow(c.flightTerm()), c.refusal())
		if err == nil && life == "" {
			err = c.away()
		}
		if err != nil {
			if t != nil {
				t.gone = true
			}
			return 0, err
		}
		if err := c.await(ctx); err != nil {
			if t != nil && t.done {
				return t.time, nil
			}
			if t != nil {
				t.gone = true
			}
			return 0, err
		}
	}
}

// sendBack lets commits that wait for their times ask anew, when there is no
// load. The caller holds the lock.
func (c *clock) sendBack() {
	c.waiting = slices.DeleteFunc(c.waiting, func(t *ticket) bool {
		t.back = !t.loading
		return t.back
	})
	c.broadcast()
}

// depart notes a flight. The caller holds the lock.
func (c *clock) depart(at driver.Instant) {
	c.last = max(c.last, at)
	c.flights = append(c.flights, at)
}

// flies reports whether a time is still in flight. The caller holds the lock.
func (c *clock) flies(at driver.Instant) bool {
	_, there := slices.BinarySearch(c.flights, at)
	return there
}

// die forgets the life that others have ended, and begins another one under a
// new name, so that nothing that was sent in the old one has an effect in it.
// What was in flight is past for the others: it was carried out by then, or it
// never will be. It reports whether a load was under way.
func (c *clock) die(life string) (loading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	loading = c.loads()
	c.life, c.mode, c.leased, c.beat = life, joining, false, 0
	c.flights, c.told, c.claimed = nil, 0, false
	// Nobody would end the flights of a load that has ended with the life.
	c.waiting = slices.DeleteFunc(c.waiting, func(t *ticket) bool { return t.loading })
	c.broadcast()
	return loading
}

// land ends a flight whose outcome is certain. One of a former life has ended already.
func (c *clock) land(at driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := slices.BinarySearch(c.flights, at); ok {
		c.flights = slices.Delete(c.flights, i, i+1)
	}
	if c.mode != alone {
		c.kick() // others wait for it
	}
	c.broadcast()
}

// giveUp ends a flight whose outcome nobody will know.
func (c *clock) giveUp(at driver.Instant) {
	c.lose()
	c.land(at)
}

// lose notes that something of this server is left for others to find out.
func (c *clock) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unclear = true
}

// passed reports whether no commit with a time at or before an instant can
// still appear, as far as this server knows. The caller holds the lock.
func (c *clock) passed(at driver.Instant) bool {
	if len(c.flights) > 0 && c.flights[0] <= at {
		return false
	}
	return c.mode == alone || c.mode == shared && at <= c.stable
}

// settled is passed for those who do not hold the lock. It also reports
// whether the wait is for this server's own commits, or for others.
func (c *clock) settled(at driver.Instant) (yes, own bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed(at), len(c.flights) > 0 && c.flights[0] <= at || c.mode != shared
}

// awaitChange waits for a change unless an instant has been passed.
func (c *clock) awaitChange(ctx context.Context, at driver.Instant) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.passed(at):
		return nil
	case c.emptied:
		return errEmptied
	}
	return c.await(ctx)
}

// awaitTold returns when others know that no commit of this server with a time
// at or before an instant is in flight.
func (c *clock) awaitTold(ctx context.Context, at driver.Instant) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mode == shared && c.told != 0 && c.told <= at {
		if err := c.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reach makes an instant one that later commits are after. It reports false
// where the instant is in the future, and when that is.
func (c *clock) reach(ctx context.Context, at driver.Instant) (driver.Instant, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if present := max(c.last, c.wall()); at > present {
		return present, false, nil
	}
	for {
		switch c.mode {
		case alone:
			if at <= c.floor {
				c.last = max(c.last, at)
				return at, true, nil
			}
			c.want(at)
		case shared:
			if at <= c.mark {
				return at, true, nil
			}
			c.want(at)
		case joining, between:
		}
		if err := c.awaitTurn(ctx); err != nil {
			return 0, false, err
		}
	}
}

// handedOut returns the greatest instant that anyone was given, and whether
// nothing is left for others to find out or to complete.
func (c *clock) handedOut() (driver.Instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, !c.unclear && len(c.flights) == 0 && !c.loads()
}
