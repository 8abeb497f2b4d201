package mongostore

import (
	"context"
	"time"

	"github.com/asof/asof/storage/driver"
)

// look learns what the clock document says now. Those who ask at the same time
// share one answer, to a question put after they asked. It is not the whole
// where others removed this server and hand out times without it.
func (f *fleet) look(ctx context.Context) (whole bool, err error) {
	f.mu.Lock()
	call := f.next
	if call == nil {
		call = &lookCall{done: make(chan struct{})}
		f.next = call
		if !f.looking {
			f.looking = true
			go f.answer()
		}
	}
	f.mu.Unlock()
	select {
	case <-call.done:
		return call.whole, call.err
	case <-ctx.Done():
		return false, driver.Errorf(driver.CodeUnavailable, "asking for the database's clock: the time was up: %w", ctx.Err())
	}
}

// answer answers those who look, until there are none.
func (f *fleet) answer() {
	for {
		f.mu.Lock()
		call := f.next
		f.next, f.looking = nil, call != nil
		f.mu.Unlock()
		if call == nil {
			return
		}
		ctx, cancel := context.WithTimeout(f.life, attemptTimeout)
		var state *clockState
		err := persist(ctx, func() (err error) {
			state, err = f.doc.readWith(ctx, f.looks)
			return err
		})
		cancel()
		if err == nil {
			call.whole = f.learn(state)
		}
		call.err = wrap(err, "asking for the database's clock")
		close(call.done)
	}
}

// learn takes a state of the document into account, unless it is not, or no
// longer, the whole.
func (f *fleet) learn(state *clockState) bool {
	c := f.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	own, there := state.Servers[c.life]
	_, unaware := state.others(c.life)
	if c.mode != shared || !there || unaware {
		return false
	}
	c.mark, c.last = max(c.mark, state.Mark), max(c.last, state.Mark)
	stable := min(state.Mark, state.lowest(c.life)-1)
	if own.Beat > c.beat && own.Low != 0 {
		stable = min(stable, own.Low-1) // times were taken that are not known here yet
	}
	if stable > c.stable {
		c.stable = stable
		c.broadcast()
	}
	return true
}

// now returns an instant to read at.
func (f *fleet) now(ctx context.Context) (driver.Instant, error) {
	for wait := lookPause; ; wait = min(2*wait, lookPauses) {
		looked := false
		if f.shares() {
			err := f.clock.isAway()
			if err == nil {
				looked, err = f.look(ctx)
			}
			if err != nil {
				return 0, err
			}
			if !looked {
				// The next exchange finds out that this server was removed, unless it is refused.
				if err := f.clock.refused(); err != nil {
					return 0, err
				}
				pause(ctx, wait)
				continue
			}
		}
		if at, ok, err := f.clock.read(ctx, looked); ok || err != nil {
			return at, err
		}
	}
}

func (f *fleet) shares() bool {
	f.clock.mu.Lock()
	defer f.clock.mu.Unlock()
	return f.clock.mode == shared
}

// settle makes an instant stable, see driver.Engine.Settle.
func (f *fleet) settle(ctx context.Context, at driver.Instant) error {
	present, reached, err := f.clock.reach(ctx, at)
	if err == nil && !reached && f.shares() {
		// Another server's clock may be ahead of this one's.
		if _, err = f.look(ctx); err == nil {
			present, reached, err = f.clock.reach(ctx, at)
		}
	}
	if err != nil {
		return err
	}
	if !reached {
		return invalidf("%s is in the future; the store's clock says %s", at, present)
	}
	return f.wait(ctx, at)
}

// wait returns when no commit with a time at or before an instant is in
// flight, of this server or of another.
func (f *fleet) wait(ctx context.Context, at driver.Instant) error {
	pause := lookPause
	for {
		passed, own := f.clock.settled(at)
		switch {
		case passed:
			return nil
		case own:
			if err := f.clock.awaitChange(ctx, at); err != nil {
				return err
			}
			continue
		}
		if _, err := f.look(ctx); err != nil {
			return err
		}
		if passed, _ := f.clock.settled(at); passed {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, lookPauses)
	}
}

// acknowledge returns when every server knows that a commit has landed, and
// all before it: whoever reads from then on, wherever, sees it.
func (f *fleet) acknowledge(ctx context.Context, at driver.Instant) error {
	if err := f.clock.awaitTold(ctx, at); err != nil {
		return err
	}
	return f.wait(ctx, at)
}

// saw makes later commits come after an instant that was loaded.
func (f *fleet) saw(ctx context.Context, at driver.Instant) error {
	_, _, err := f.clock.reach(ctx, at)
	return err
}
