package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A load changes many documents, and all of it must happen. So nothing is
// committed while there is one, by any server: exclude waits for the commits
// in flight, and include lets them take off again. The loads of a server that
// died are completed, before anything is committed, by the one that removes it.

// exclude holds commits off. The caller calls include when it succeeds.
func (f *fleet) exclude(ctx context.Context) error {
	c := f.clock
	c.mu.Lock()
	for c.loads() {
		if err := c.await(ctx); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	c.loading = true
	c.mu.Unlock()
	if err := f.quiet(ctx); err != nil {
		f.include()
		return err
	}
	return nil
}

// include ends what exclude began.
func (f *fleet) include() {
	c := f.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loading = false
	if c.claimed {
		f.kick()
	}
	c.broadcast()
}

// quiet waits until no commit is in flight, while none can take off.
func (f *fleet) quiet(ctx context.Context) error {
	c := f.clock
	c.mu.Lock()
	if c.mode != alone {
		f.kick()
	}
	for len(c.flights) > 0 || len(c.waiting) > 0 || c.mode != alone && (c.mode != shared || !c.claimed) {
		if err := c.await(ctx); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	mark := c.mark
	if c.mode == alone {
		mark = c.last
	}
	c.mu.Unlock()
	return f.wait(ctx, mark)
}

// claim tells the others that there is a load, or that there is none any more.
func (f *fleet) claim(ctx context.Context) error {
	c := f.clock
	c.mu.Lock()
	wanted, claimed := c.loads(), c.claimed
	// Times that were asked for before are taken first.
	later := wanted && (len(c.waiting) > 0 || c.mode == alone)
	c.mu.Unlock()
	if wanted == claimed || later {
		return nil
	}
	loader, condition := f.doc.id, f.doc.unloaded()
	if !wanted {
		loader, condition = "", bson.E{Key: "loader", Value: f.doc.id}
	}
	before, err := f.doc.exchange(ctx, bson.D{{Key: "loader", Value: loader}}, nil, condition)
	if errors.Is(err, errUnmet) && !wanted {
		err = nil // another one has it
	}
	if err != nil {
		return err // also where another one loads: it is tried again
	}
	c.mu.Lock()
	c.claimed, c.beat = wanted, f.doc.beat
	if before != nil {
		c.mark = max(c.mark, before.Mark)
	}
	c.broadcast()
	c.mu.Unlock()
	return nil
}

// bury removes a server that is dead, and completes what it was loading. When
// it is not clear whether it was removed, that does no harm.
func (f *fleet) bury(ctx context.Context, id string, last serverState) {
	removed, err := f.doc.remove(ctx, id, last)
	if !removed && err == nil {
		return // it moved, or another server loads: later, then
	}
	delete(f.silent, id)
	f.owe()
}

// adopt completes the loads of a server that is still the loader, and was removed
// before it knew.
func (f *fleet) adopt(ctx context.Context, loader string) {
	if taken, err := f.doc.takeOver(ctx, loader); taken || err != nil {
		f.owe()
	}
}

// owe makes commits wait until the loads of dead servers are completed, also
// those that have asked for their times already.
func (f *fleet) owe() {
	c := f.clock
	c.mu.Lock()
	c.debts++
	c.claimed = true
	c.sendBack()
	first := c.debts == 1
	c.mu.Unlock()
	if first {
		f.heirs.Go(func() { f.inherit(f.life) })
	}
}

// inherit completes what dead servers were loading.
func (f *fleet) inherit(life context.Context) {
	c := f.clock
	pause := firstPause
	for life.Err() == nil {
		c.mu.Lock()
		debts, loading := c.debts, c.loading
		c.mu.Unlock()
		err := errors.New("a load of this server is under way")
		if !loading {
			if err = f.quiet(life); err == nil {
				err = f.complete(life)
			}
		}
		if err != nil {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-life.Done():
			}
			timer.Stop()
			pause = min(2*pause, longestPause)
			continue
		}
		c.mu.Lock()
		if c.debts == debts {
			c.debts = 0
			f.kick()
			c.broadcast()
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}
