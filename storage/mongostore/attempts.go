package mongostore

import (
	"context"
	"time"

	"github.com/asof/asof/storage/driver"
)

// committing is one Commit on its way.
type committing struct {
	c      *collection
	w      *driver.Write
	lapsed bool // the last attempt ended with the lease

	// uncertain are the times of attempts that may still be applied. The first of
	// them began, and the last one ended, at times of elapsed.
	uncertain []driver.Instant
	from, to  time.Duration
	rounds    int // how often such attempts had to be settled
	// ended is what an attempt moved to the overflow that was to supersede it.
	ended *head
}

// maxRounds is how often a write is tried again whose attempts are not answered,
// and turn out not to have been applied. It is given up then: the database may
// need longer for it than attempts may take.
const maxRounds = 3

// doubt notes an attempt that may still be applied.
func (t *committing) doubt(at driver.Instant, began time.Duration) {
	if len(t.uncertain) == 0 {
		t.from = began
	}
	t.to = t.c.store.clock.elapsed()
	t.uncertain = append(t.uncertain, at)
}

// overdue reports whether attempts without an outcome hold up others for long
// enough, or can have no effect any more anyway. While there was only one, another
// one may succeed at once.
func (t *committing) overdue() bool {
	now, late := t.c.store.clock.elapsed(), t.c.store.fleet.late()
	switch {
	case len(t.uncertain) == 0:
		return false
	case now-t.to >= late:
		return true
	case len(t.uncertain) == 1 && t.rounds == 0:
		return false
	}
	return t.lapsed || now-t.from >= late
}

// settle waits until no attempt can be applied any more, and says what became of
// the write. It returns nil and nil where none was: then none is in flight either.
func (t *committing) settle(life context.Context) (*driver.Version, error) {
	store := t.c.store
	pause(life, t.to+store.fleet.late()-store.clock.elapsed())
	ctx, cancel := context.WithTimeout(life, attemptTimeout)
	defer cancel()
	h, err := t.c.readLastHead(ctx, t.w.Key)
	if err != nil {
		return nil, err
	}
	if v, err := t.outcome(ctx, h); v != nil || err != nil {
		return v, err
	}
	for _, at := range t.uncertain {
		store.clock.land(at)
	}
	t.uncertain = nil
	t.rounds++
	return nil, nil
}

// run makes the write, see try, and sees to it that the version before says when it
// ended, also where another attempt superseded it than the last that moved it.
func (t *committing) run(life context.Context) (*driver.Version, error) {
	defer func() {
		for _, at := range t.uncertain {
			if life.Err() != nil {
				t.c.store.clock.giveUp(at)
			} else {
				t.c.store.clock.land(at)
			}
		}
	}()
	v, err := t.try(life)
	if t.ended != nil && (v != nil || driver.CodeOf(err) == driver.CodeConflict) {
		ctx, cancel := context.WithTimeout(life, attemptTimeout)
		defer cancel()
		if err := persist(ctx, func() error { return t.end(ctx, v) }); err != nil {
			t.c.store.logger.Error("the end of a version may be wrong; asof check tells", "collection", t.c.name, "key", t.w.Key, "version", t.ended.Number, "error", err)
		}
	}
	return v, err
}

// end says of a version that was moved to the overflow before it was superseded when
// it ended: several may have moved it, this write and others, at different times, of
// whom one superseded it, with the version that was made, or with another.
func (t *committing) end(ctx context.Context, made *driver.Version) error {
	if made == nil || made.Number != t.ended.Number+1 {
		found, err := t.c.get(ctx, []driver.Ref{{Key: t.w.Key, Number: t.ended.Number + 1}})
		if err != nil || found[0] == nil {
			return err
		}
		made = &found[0].Version
	}
	return t.c.endRun(ctx, supersede(&t.ended.record, made.RecordedAt), t.w.Key)
}

// try tries until the outcome is certain. An attempt whose outcome is unknown
// is tried again on the same condition: of all attempts, at most one can find
// it fulfilled, and which version it made is looked up by the write's ID. Such
// attempts hold up the acknowledgement of all commits, so that after some time it
// is waited until they can have no effect any more, before there is another one.
func (t *committing) try(life context.Context) (*driver.Version, error) {
	known := t.c.remembered(t.w.Key, t.w.Expected)
	blind := t.w.Expected == 0 || known != nil // the first attempt needs no reading
	wait, timeout := firstPause, firstTimeout
	var last error
	for misses := 0; ; misses++ {
		if t.overdue() {
			v, err := t.settle(life)
			switch {
			case v != nil || err != nil && (life.Err() != nil || driver.CodeOf(err) == driver.CodeConflict):
				return v, err
			case err != nil:
				pause(life, longestPause)
				continue
			case t.rounds == maxRounds:
				return nil, driver.Errorf(driver.CodeUnavailable, "the database did not answer in time, however often this was written, and nothing was; try again: %w", last)
			}
		}
		ctx, cancel := context.WithTimeout(life, timeout)
		v, err := t.attempt(ctx, known, blind)
		short := (ctx.Err() != nil || t.lapsed) && timeout < attemptTimeout // with more time it may succeed
		cancel()
		timeout = min(2*timeout, attemptTimeout)
		if v != nil || err != nil && (len(t.uncertain) == 0 && !short || life.Err() != nil || driver.CodeOf(err) == driver.CodeConflict) {
			return v, err
		}
		known, blind, last = nil, false, err
		if err != nil || misses > 0 { // a document that is not as it was seen twice is seldom
			pause(life, wait)
			wait = min(2*wait, longestPause)
		}
	}
}

// outcome says what became of the write, as far as the document tells: the
// version that it made, the conflict that it lost to, or neither, where it can
// still be made.
func (t *committing) outcome(ctx context.Context, h *head) (*driver.Version, error) {
	w := t.w
	conflict := &driver.ConflictError{Collection: w.Collection, Key: w.Key, Expected: w.Expected}
	switch {
	case h == nil && w.Expected == 0:
		return nil, nil
	case h == nil:
		return nil, conflict
	case h.id == w.ID:
		return &h.Version, nil
	}
	var made *record
	var err error
	switch {
	case w.Expected == 0:
		// It may have made any version that follows on none or on a tombstone.
		made, err = t.c.findWrite(ctx, w.Key, w.ID)
	case w.Expected+1 < h.Number:
		// It can have made only the version after the expected one, which this is not.
		var found []*record
		if found, err = t.c.get(ctx, []driver.Ref{{Key: w.Key, Number: w.Expected + 1}}); err == nil && found[0] != nil && found[0].id == w.ID {
			made = found[0]
		}
	}
	switch {
	case err != nil:
		return nil, err
	case made != nil:
		return &made.Version, nil
	case w.Expected == h.Number, w.Expected == 0 && h.Deleted:
		return nil, nil
	}
	conflict.Actual = h.Number
	return nil, conflict
}
