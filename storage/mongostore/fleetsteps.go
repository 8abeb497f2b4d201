package mongostore

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// comeIn waits until all other servers know of this one.
func (f *fleet) comeIn(ctx context.Context) error {
	before, err := f.exchange(ctx, nil, nil)
	if err != nil {
		return err
	}
	some, unaware := before.others(f.doc.id)
	if !some {
		return f.goAlone(ctx)
	}
	f.listen(ctx, before)
	if unaware {
		return nil
	}
	f.becomeShared(before, 0)
	return f.beatShared(ctx, true)
}

// becomeShared begins with what the document says. All that was handed out
// before, which others know of, stays stable.
func (f *fleet) becomeShared(state *clockState, handedOut driver.Instant) {
	c := f.clock
	c.mu.Lock()
	c.mode, c.beat = shared, f.doc.beat
	c.stable = max(c.stable, handedOut)
	c.mark = max(c.mark, handedOut)
	c.broadcast()
	c.mu.Unlock()
	f.learn(state)
}

// comeBack comes in again after others took this server for dead. Until it is
// certain that it did, it is the same life that is tried again.
func (f *fleet) comeBack(ctx context.Context) error {
	c := f.clock
	if !f.rejoining {
		f.rejoining, f.waits = true, false
		f.silent = make(map[string]silence)
		id := rand.Text()
		if c.die(id) {
			f.owe(false) // also what this server was loading
		}
		f.doc.id, f.doc.beat = id, 0
	}
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	err := f.doc.join(ctx, last, true)
	f.rejoining = err != nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emptied = errors.Is(err, errEmptied)
	c.broadcast()
	return err
}

// floorAhead is up to where a server that is alone may hand out instants. The
// caller holds the clock's lock.
func (f *fleet) floorAhead() driver.Instant {
	c := f.clock
	ahead := driver.Instant((aheadBeats * f.every).Microseconds())
	return max(c.floor, max(c.last, c.wanted, c.wall())+ahead)
}

// beatAlone says how far instants may be handed out, and looks whether this
// server still is alone.
func (f *fleet) beatAlone(ctx context.Context) error {
	c := f.clock
	c.mu.Lock()
	floor := f.floorAhead()
	c.mu.Unlock()
	before, err := f.exchange(ctx, bson.D{{Key: f.doc.field("floor"), Value: int64(floor)}}, nil)
	if err != nil {
		return err
	}
	if some, _ := before.others(f.doc.id); some {
		return f.share(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = floor
	c.broadcast()
	return nil
}

// share goes over from the server's own clock to that of all.
func (f *fleet) share(ctx context.Context) error {
	c := f.clock
	c.mu.Lock()
	c.mode = between
	handedOut := c.last
	c.told = c.lowest()
	low, loads := c.told, c.loads()
	c.mu.Unlock()
	set := bson.D{{Key: f.doc.field("alone"), Value: false}, {Key: f.doc.field("low"), Value: int64(low)}, {Key: f.doc.field("floor"), Value: int64(0)}}
	if loads {
		set = append(set, bson.E{Key: "loader", Value: f.doc.id})
	}
	before, err := f.exchange(ctx, set, bson.D{{Key: "$max", Value: bson.D{{Key: "mark", Value: int64(handedOut)}}}})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.claimed = c.claimed || loads
	c.mu.Unlock()
	f.becomeShared(before, handedOut)
	return nil
}

// goAlone goes over to the server's own clock, unless another server comes in.
func (f *fleet) goAlone(ctx context.Context) error {
	c := f.clock
	c.mu.Lock()
	floor := f.floorAhead()
	c.mu.Unlock()
	before, err := f.exchange(ctx, bson.D{
		{Key: f.doc.field("alone"), Value: true},
		{Key: f.doc.field("low"), Value: int64(0)},
		{Key: f.doc.field("floor"), Value: int64(floor)},
		{Key: f.doc.field("waits"), Value: false},
	}, nil, bson.E{Key: "n", Value: int64(1)})
	if errors.Is(err, errUnmet) {
		return nil // another server comes in
	}
	if err != nil {
		return err
	}
	f.waits = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = 0
	c.mode, c.floor = alone, max(floor, before.Mark)
	c.last = max(c.last, before.Mark)
	f.assign(max(c.wall(), c.last+1))
	c.broadcast()
	return nil
}

// assign gives all that wait their times, from one on. The caller holds the
// clock's lock.
func (f *fleet) assign(from driver.Instant) {
	c := f.clock
	for _, t := range c.waiting {
		t.time, t.done = max(from, t.after+1), true
		from = t.time + 1
		if t.gone {
			c.last = max(c.last, t.time)
			continue
		}
		c.depart(t.time)
	}
	c.waiting = nil
}

// beatShared takes times for the commits that wait, and tells others what has
// landed, and that it waits for a load of theirs to end. Without any of it it does
// nothing unless it is due.
func (f *fleet) beatShared(ctx context.Context, due bool) error {
	c := f.clock
	refused := f.again > c.elapsed()
	var busy error
	if refused {
		busy = errUnmet
	} else if busy = f.claim(ctx); busy != nil && !errors.Is(busy, errUnmet) {
		return busy
	}
	c.mu.Lock()
	c.waiting = slices.DeleteFunc(c.waiting, func(t *ticket) bool { return t.gone })
	n := driver.Instant(len(c.waiting))
	low := c.lowest()
	mark := c.wanted
	if due {
		mark = max(mark, c.wall())
		f.ahead -= f.ahead / aheadDecay
	}
	first := max(c.wall()+f.ahead, c.mark+1, c.last+1)
	for _, t := range c.waiting {
		first = max(first, t.after+1)
	}
	waits := n > 0 || c.loads() && !c.claimed
	idle := !due && low == c.told && mark <= c.mark
	c.mu.Unlock()
	var before *clockState
	var err error
	took := n > 0 && !refused
	if took {
		var reserved driver.Instant
		before, reserved, err = f.reserve(ctx, low, first, n)
		switch {
		case err == nil:
			first, mark, busy = reserved, reserved+n-1, nil
		case errors.Is(err, errUnmet):
			busy, took = err, false // another server loads
		default:
			return err
		}
	}
	waits = waits && busy != nil
	if busy != nil && !refused {
		f.again = c.elapsed() + f.every/loadPolls
	}
	if !took {
		n = 0
		if idle && waits == f.waits {
			return busy
		}
		if before, err = f.tell(ctx, low, mark, waits); err != nil {
			return err
		}
	}
	f.take(before, int(n), first, max(before.Mark, mark))
	if due {
		f.listen(ctx, before)
	}
	if some, _ := before.others(f.doc.id); !some {
		return f.goAlone(ctx)
	}
	return busy
}

// reserve takes n times that follow on each other, from one on, or from a later
// one where others have taken such times before. What is told to be in flight
// is exact, so that nobody waits for more than there is. It ends with errUnmet
// while another server loads.
func (f *fleet) reserve(ctx context.Context, low, first, n driver.Instant) (*clockState, driver.Instant, error) {
	ended := low == 0
	for step := driver.Instant(1); ; step *= 2 {
		if ended {
			low = first
		}
		began := f.clock.elapsed()
		before, err := f.tell(ctx, low, first+n-1, false, bson.E{Key: "mark", Value: bson.D{{Key: "$lt", Value: int64(first)}}}, f.doc.unloaded())
		if !errors.Is(err, errUnmet) || before.Loader != "" && before.Loader != f.doc.id {
			return before, first, err
		}
		if before.Mark >= first {
			// The clock that is ahead of the others is the one that they follow.
			f.ahead = max(f.ahead, before.Mark-f.clock.wall())
			first = before.Mark + step
			// While it is on its way, the others go on with their clocks.
			if took := f.clock.elapsed() - began; took > f.every/noticed {
				first = max(first, f.clock.wall()+f.ahead+driver.Instant(took.Microseconds()))
			}
		}
	}
}

// tell says what is in flight, and whether this server waits for a load of
// another one to end, and raises the mark.
func (f *fleet) tell(ctx context.Context, low, mark driver.Instant, waits bool, condition ...bson.E) (*clockState, error) {
	before, err := f.exchange(ctx, bson.D{{Key: f.doc.field("low"), Value: int64(low)}, {Key: f.doc.field("waits"), Value: waits}},
		bson.D{{Key: "$max", Value: bson.D{{Key: "mark", Value: int64(mark)}}}}, condition...)
	if err == nil {
		f.waits = waits
		f.clock.mu.Lock()
		f.clock.told = low
		f.clock.mu.Unlock()
	}
	return before, err
}

// take gives the first n that wait times from one on, and takes into account
// what the document says now.
func (f *fleet) take(before *clockState, n int, first, mark driver.Instant) {
	c := f.clock
	c.mu.Lock()
	more := slices.Clone(c.waiting[n:])
	c.waiting = c.waiting[:n]
	if n > 0 {
		f.assign(first)
	}
	c.waiting = more
	c.beat = f.doc.beat
	c.mark = max(c.mark, mark)
	if before.Loader == f.doc.id && !c.claimed {
		c.claimed = true // by a change without an answer
		f.kick()
	}
	c.broadcast()
	c.mu.Unlock()
	after := *before
	after.Mark = mark
	f.learn(&after)
}
