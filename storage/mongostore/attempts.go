package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/storage/driver"
)

// committing is one Commit on its way.
type committing struct {
	c *collection
	w *driver.Write

	uncertain []*flight // of attempts that may still be carried out
	rounds    int       // how often it was waited until they could not
	// ended is what an attempt moved to the overflow that was to supersede it.
	ended *head
}

const (
	// maxRounds is how often a write is tried again whose attempts are not answered,
	// and turn out not to have been carried out.
	maxRounds = 3
	// maxUncertain is how many attempts without an outcome there are before it is waited
	// for the end of their lives: no instant after them is read at until then.
	maxUncertain = 2
	// firstTimeout is how long the first attempt may take until it has its time; each
	// further one may take twice as long, up to attemptTimeout.
	firstTimeout   = 2 * time.Second
	attemptTimeout = 10 * time.Second
)

// settle waits until no attempt can be carried out any more, and says what became of
// the write. It returns nil and nil where none was: then none is in flight either.
func (t *committing) settle(life context.Context) (*driver.Version, error) {
	if err := t.c.store.clock.awaitEnd(life, t.uncertain); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(life, attemptTimeout)
	defer cancel()
	h, err := t.c.readHead(ctx, t.w.Key)
	if err != nil {
		return nil, err
	}
	if v, err := t.outcome(ctx, h); v != nil || err != nil {
		return v, err
	}
	t.c.store.clock.land(t.uncertain...)
	t.uncertain = nil
	t.rounds++
	return nil, nil
}

// run makes the write, see try, and sees to it that the version before says when it
// ended, also where another attempt superseded it than the last that moved it.
func (t *committing) run(life context.Context) (*driver.Version, error) {
	defer func() {
		if life.Err() == nil { // else they stay in flight until others evict them
			t.c.store.clock.land(t.uncertain...)
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
// it fulfilled, and which version it made is looked up by the write's ID.
func (t *committing) try(life context.Context) (*driver.Version, error) {
	known := t.c.remembered(t.w.Key, t.w.Expected)
	blind := t.w.Expected == 0 || known != nil // the first attempt needs no reading
	began := t.c.store.clock.elapsed()
	var last error
	wait, timeout := firstPause, firstTimeout
	for {
		v, err := t.attempt(life, timeout, known, blind)
		timeout = min(2*timeout, attemptTimeout)
		if v != nil || err != nil && (life.Err() != nil || driver.CodeOf(err) == driver.CodeConflict) {
			return v, err
		}
		if err != nil {
			last = err
		}
		ends := err != nil && (!passes(err) || t.c.store.clock.elapsed()-began > t.c.store.timeout)
		for len(t.uncertain) >= maxUncertain || ends && len(t.uncertain) > 0 {
			v, err := t.settle(life)
			switch {
			case v != nil || err != nil && (life.Err() != nil || driver.CodeOf(err) == driver.CodeConflict):
				return v, err
			case err != nil:
				pause(life, longestPause)
			case t.rounds == maxRounds && !ends:
				return nil, driver.Errorf(driver.CodeUnavailable, "the database did not answer in time, however often this was written, and nothing was; try again: %w", last)
			}
		}
		if ends {
			return nil, last
		}
		if err != nil || known == nil && !blind { // a document that is not as it was seen twice is seldom
			pause(life, wait)
			wait = min(2*wait, longestPause)
		}
		known, blind = nil, false
	}
}

// passes reports whether an error may not be there another time: a connection broke, the
// time was up, or there is no primary now.
func passes(err error) bool {
	var selection topology.ServerSelectionError
	var server mongo.ServerError
	return mongo.IsTimeout(err) || isUnreachable(err) && !errors.As(err, &selection) || errors.As(err, &server) && !staysRefused(err)
}

// outcome says what became of the write, as far as the document tells: the
// version that it made, the conflict that it lost to, or neither, where it can
// still be made.
func (t *committing) outcome(ctx context.Context, h *head) (*driver.Version, error) {
	w := t.w
	conflict := &driver.ConflictError{Collection: w.Collection, Key: w.Key, Expected: w.Expected}
	switch {
	case (h == nil || h.Number == 0) && w.Expected == 0:
		return nil, nil
	case h == nil || h.Number == 0:
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
