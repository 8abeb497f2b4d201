package mongostore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/storage/driver"
)

// The pauses between attempts.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// Commit implements driver.Engine. When the context ends on the way, the write
// goes on until its outcome is certain: until then its time is in flight, and
// no reader is given an instant at or after it.
func (s *Store) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	w := &ws[0]
	c := s.collections[w.Collection]
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	// The same write may still be on its way, for a caller who gave up: there is
	// one outcome for both. Otherwise one could report a conflict, and the other
	// find its condition fulfilled later.
	id := c.name + " " + w.ID
	o := &outcome{done: make(chan struct{})}
	if running, there := s.writes.LoadOrStore(id, o); there {
		o = running.(*outcome)
	} else {
		own := *w // the caller may go on without waiting for the outcome
		own.Data, own.Changed = bytes.Clone(w.Data), slices.Clone(w.Changed)
		s.running.Go(func() {
			t := &committing{c: c, w: &own}
			ctx, done := s.causal(s.life)
			if o.version, o.err = t.run(ctx); o.err == nil {
				ctx, cancel := context.WithTimeout(ctx, s.timeout)
				o.err = s.clock.acknowledge(ctx, o.version.RecordedAt)
				cancel()
			}
			done()
			if o.version == nil && len(t.uncertain) == 0 {
				o.err = refused(wrap(o.err, "committing"))
			}
			s.writes.Delete(id)
			close(o.done)
		})
	}
	select {
	case <-o.done:
		if o.err != nil {
			return nil, wrap(o.err, "committing")
		}
		return []*driver.Version{o.version}, nil
	case <-ctx.Done():
		return nil, driver.Errorf(driver.CodeUnavailable,
			"the request ended before the outcome of the write was known; the same write, with the same ID, tells: %w", ctx.Err())
	}
}

// MaxWrites implements driver.Batcher: what is atomic is the update of one document.
func (*Store) MaxWrites() int { return 1 }

// outcome is what became of a write; to be read when done is closed.
type outcome struct {
	done    chan struct{}
	version *driver.Version
	err     error
}

// attempt tries once, and may take so long until it has its time. It returns nil and nil
// where the condition did not hold, so that the document must be looked at again.
func (t *committing) attempt(life context.Context, timeout time.Duration, h *head, blind bool) (*driver.Version, error) {
	w, clock := t.w, t.c.store.clock
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	if !blind {
		var err error
		if h, err = t.c.readHead(ctx, w.Key); err != nil {
			return nil, err
		}
		if v, err := t.outcome(ctx, h); v != nil || err != nil {
			return v, err
		}
	}
	if h == nil {
		_, err := t.c.main.InsertOne(ctx, placeholder(w.Key))
		if mongo.IsDuplicateKeyError(err) && !isForeignIndex(err) {
			return nil, nil
		}
		if err != nil {
			return nil, certain(err)
		}
		h = new(head)
	}
	r := &record{id: w.ID, Version: driver.Version{
		Collection: w.Collection, Key: w.Key, Number: h.Number + 1, SupersededAt: driver.Forever,
		Op: w.Op, Deleted: w.Deleted, Author: w.Author, Message: w.Message, Group: w.Group, Changed: w.Changed, Data: w.Data,
	}}
	// What was current is sent again, as history.
	f, err := clock.begin(ctx, h.arrived(), clock.lifeOf(len(r.Data)+len(h.Data), len(t.uncertain)+t.rounds))
	if err != nil {
		return nil, certain(err)
	}
	r.RecordedAt = f.at
	sending, sent := context.WithTimeout(life, f.run)
	defer sent()
	made, err := t.write(sending, h, r, f)
	if err != nil && uncertain(err) {
		t.uncertain = append(t.uncertain, f)
		return nil, err
	}
	clock.end(f)
	if err != nil {
		t.c.forget(w.Key)
		return nil, err
	}
	if made == nil {
		t.c.forget(w.Key)
		return nil, nil
	}
	t.c.remember(w.Key, made)
	return &r.Version, nil
}

// write makes a version the current one, on condition that the head still is, and that
// the flight's life is not over. It returns nil where that is not so.
func (t *committing) write(ctx context.Context, h *head, r *record, f *flight) (*head, error) {
	current := encodeVersion(r)
	if h.Number == 0 {
		result, err := t.c.main.UpdateOne(ctx, append(unmade(r.Key), f.inTime()), bson.D{{Key: "$set", Value: bson.D{{Key: "current", Value: embedded(current)}}}})
		if err != nil || result.MatchedCount == 0 {
			return nil, err
		}
		return &head{record: *r}, nil
	}
	old := supersede(&h.record, r.RecordedAt)
	made := &head{record: *r, n: h.n + 1, size: h.size + int64(len(old.raw))}
	set := bson.D{{Key: "current", Value: embedded(current)}}
	var change bson.D
	if b := t.c.bounds.beside(len(current)); made.n <= int64(b.Versions) && made.size <= int64(b.Bytes) {
		set = append(set, bson.E{Key: "n", Value: made.n}, bson.E{Key: "size", Value: made.size})
		change = bson.D{{Key: "$set", Value: set}, {Key: "$push", Value: bson.D{{Key: "prev", Value: embedded(old.raw)}}}}
	} else {
		prev, still, err := t.c.readPrev(ctx, h)
		if err != nil || !still {
			return nil, certain(err)
		}
		versions := append(prev, old)
		gone, err := t.c.overflow(ctx, b, r.Key, versions, b.cut(versions, made.size, len(current)), true)
		if err != nil {
			return nil, certain(err)
		}
		kept := versions[gone:]
		if len(kept) == 0 {
			t.ended = h
		}
		made.n, made.size = int64(len(kept)), sizeOf(kept)
		set = append(set, bson.E{Key: "n", Value: made.n}, bson.E{Key: "size", Value: made.size})
		if len(kept) == 0 {
			change = bson.D{{Key: "$set", Value: append(set, bson.E{Key: "prev", Value: bson.A{}})}}
		} else {
			// What has moved falls out at the front; what stays is not sent again.
			change = bson.D{{Key: "$set", Value: set}, {Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{
				{Key: "$each", Value: raws(versions[len(versions)-1:])}, {Key: "$slice", Value: -made.n},
			}}}}}
		}
	}
	// n as well: with it, what prev holds is certain, and what falls out of it.
	condition := append(guard(h.Key, h.Number, h.RecordedAt), bson.E{Key: "n", Value: h.n}, f.inTime())
	result, err := t.c.main.UpdateOne(ctx, condition, change)
	if err != nil || result.MatchedCount == 0 {
		return nil, err
	}
	return made, nil
}

// lifeOf is how long the database may run a write of so many bytes; each further attempt
// may take twice as long, so that a slow database gets it done.
func (c *clock) lifeOf(bytes, attempt int) time.Duration {
	life := c.timing.life + time.Duration(max(0, bytes-smallWrite))*time.Second/lifeBytes
	return min(life<<attempt, max(longestLife, 4*life))
}

const (
	// lifeBytes are written in a second at least, of writes that are not small.
	lifeBytes  = 1 << 20
	smallWrite = 64 << 10
)

// certainError is an error of a step before the one that commits.
type certainError struct{ error }

func (e certainError) Unwrap() error { return e.error }

func certain(err error) error {
	if err == nil {
		return nil
	}
	return certainError{err}
}

// uncertain reports whether what an error ended may have been applied, or may
// still be. What the server refused was not; nor was what never left for it.
func uncertain(err error) bool {
	var before certainError
	if errors.As(err, &before) || isNeverSent(err) || isTooLarge(err) {
		return false
	}
	var write mongo.WriteException
	if errors.As(err, &write) {
		return write.WriteConcernError != nil
	}
	var command mongo.CommandError
	if errors.As(err, &command) {
		if command.HasErrorLabel("NoWritesPerformed") {
			return false // of all attempts of the driver, or it would give another error
		}
		// A primary that gives that up may have done it.
		return command.HasErrorLabel("NetworkError") || command.HasErrorLabel("RetryableWriteError") || mongo.IsTimeout(err) ||
			slices.ContainsFunc(interrupted[:], command.HasErrorCode)
	}
	return true
}

// interrupted are the codes of errors that end a command on its way: ShutdownInProgress,
// PrimarySteppedDown, InterruptedAtShutdown, InterruptedDueToReplStateChange.
var interrupted = [...]int{91, 189, 11600, 11602}

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

// resolve waits until no attempt can be carried out any more, and says what became of
// the write. It returns nil and nil where none was: then none is in flight either.
func (t *committing) resolve(life context.Context) (*driver.Version, error) {
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
	t.c.store.clock.end(t.uncertain...)
	t.uncertain = nil
	t.rounds++
	return nil, nil
}

// run makes the write, see try, and sees to it that the version before says when it
// ended, also where another attempt superseded it than the last that moved it.
func (t *committing) run(life context.Context) (*driver.Version, error) {
	defer func() {
		if life.Err() == nil { // else they stay in flight until others evict them
			t.c.store.clock.end(t.uncertain...)
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
	known := t.c.cached(t.w.Key, t.w.Expected)
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
			v, err := t.resolve(life)
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
	conflict := func(actual int64) error {
		return &driver.ConflictError{Lost: []driver.Conflict{{Collection: w.Collection, Key: w.Key, Expected: w.Expected, Actual: actual}}}
	}
	switch {
	case (h == nil || h.Number == 0) && w.Expected == 0:
		return nil, nil
	case h == nil || h.Number == 0:
		return nil, conflict(0)
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
	return nil, conflict(h.Number)
}
