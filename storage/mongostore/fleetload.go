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

// exclude holds commits off, and returns in which life of this server it does.
// The caller calls include when it succeeds. Between two loads come the commits
// that waited for the first one: those of this server take off, and others see
// that it has ended. What dead servers were loading comes first, also where they
// died while this one waited for its turn. Where the clock is refused, so is the load.
func (f *fleet) exclude(ctx context.Context) (life string, err error) {
	c := f.clock
	for owed := true; owed; {
		c.mu.Lock()
		for c.loads() || c.claimed || c.held > 0 {
			if err := c.awaitTurn(ctx); err != nil {
				c.mu.Unlock()
				return "", err
			}
		}
		c.loading = true
		c.mu.Unlock()
		life, err = f.quiet(ctx)
		c.mu.Lock()
		owed = err == nil && c.debts > 0
		c.mu.Unlock()
		if err != nil || owed {
			f.include()
		}
	}
	return life, err
}

// exclude is that of the fleet, and ends with the store.
func (s *Store) exclude(ctx context.Context) (life string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	return s.fleet.exclude(ctx)
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

// quiet waits until no commit is in flight, while none can take off. It returns
// in which life of this server that is so.
func (f *fleet) quiet(ctx context.Context) (life string, err error) {
	c := f.clock
	c.mu.Lock()
	if c.mode != alone {
		f.kick()
	}
	for len(c.flights) > 0 || len(c.waiting) > 0 || c.mode != alone && (c.mode != shared || !c.claimed) {
		if err := c.awaitTurn(ctx); err != nil {
			c.mu.Unlock()
			return "", err
		}
	}
	mark := c.mark
	if c.mode == alone {
		mark = c.last
	}
	life = c.life
	c.mu.Unlock()
	return life, f.wait(ctx, mark)
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
	if wanted && c.elapsed() < f.yield {
		state, err := f.doc.read(ctx)
		switch {
		case err != nil:
			return err
		case state.waits(f.doc.id):
			return errUnmet
		}
		f.yield = 0
	}
	loader, condition := f.doc.id, f.doc.unloaded()
	if !wanted {
		loader, condition = "", bson.E{Key: "loader", Value: f.doc.id}
	}
	before, err := f.exchange(ctx, bson.D{{Key: "loader", Value: loader}, {Key: f.doc.field("waits"), Value: false}}, nil, condition)
	switch {
	case err == nil:
		f.waits = false
		if !wanted && before.waits(f.doc.id) {
			f.yield = c.elapsed() + f.every
		}
	case !errors.Is(err, errUnmet) || wanted:
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
	f.owe(true)
}

// adopt completes the loads of a server that is still the loader, and was removed
// before it knew.
func (f *fleet) adopt(ctx context.Context, loader string) {
	if taken, err := f.doc.takeOver(ctx, loader); taken || err != nil {
		f.owe(true)
	}
}

// owe makes commits wait until the loads of dead servers are completed, also
// those that have asked for their times already. claimed: the clock document
// says already that this server loads.
func (f *fleet) owe(claimed bool) {
	c := f.clock
	c.mu.Lock()
	c.debts++
	c.claimed = c.claimed || claimed
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
			var id string
			if id, err = f.quiet(life); err == nil {
				err = f.complete(life, id)
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
