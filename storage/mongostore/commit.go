package mongostore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Bounds of one attempt to commit, and of the pauses between attempts whose
// outcome is unknown.
const (
	attemptTimeout = 10 * time.Second
	// firstTimeout is how long the first attempt may take; each further one may
	// take twice as long, up to attemptTimeout. What has a time is bounded by the
	// lease besides. While the outcome of one write is
	// unknown, later ones of any document wait to be acknowledged, so that a
	// connection that has fallen silent must not hold it up for long.
	firstTimeout = 2 * time.Second
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// Commit implements driver.Engine. When the context ends on the way, the write
// goes on until its outcome is certain: until then its time is in flight, and
// no reader is given an instant at or after it.
func (s *Store) Commit(ctx context.Context, w *driver.Write) (*driver.Version, error) {
	leave, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.collection(w.Collection)
	if err == nil {
		err = check.Write(w)
	}
	if err == nil {
		err = refused(s.clocksApart())
	}
	if err != nil {
		leave()
		return nil, err
	}
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
		leave()
		o = running.(*outcome)
	} else {
		own := *w // the caller may go on without waiting for the outcome
		own.Data, own.Changed = bytes.Clone(w.Data), slices.Clone(w.Changed)
		go func() {
			defer leave()
			t := &committing{c: c, w: &own}
			o.version, o.err = t.run(s.life)
			if o.err != nil && len(t.uncertain) == 0 {
				o.err = refused(wrap(o.err, "committing"))
			}
			s.writes.Delete(id)
			close(o.done)
		}()
	}
	select {
	case <-o.done:
		if o.err != nil {
			return nil, wrap(o.err, "committing")
		}
		if err := s.fleet.acknowledge(ctx, o.version.RecordedAt); err != nil {
			return nil, err
		}
		s.waker.wake()
		return o.version, nil
	case <-ctx.Done():
		return nil, driver.Errorf(driver.CodeUnavailable,
			"the request ended before the outcome of the write was known; the same write, with the same ID, tells: %w", ctx.Err())
	}
}

// outcome is what became of a write; to be read when done is closed.
type outcome struct {
	done    chan struct{}
	version *driver.Version
	err     error
}

// attempt tries once. It returns nil and nil where the condition did not hold,
// so that the document must be looked at again.
func (t *committing) attempt(ctx context.Context, h *head, blind bool) (*driver.Version, error) {
	w := t.w
	t.lapsed = false
	if !blind {
		var err error
		if h, err = t.c.readHead(ctx, w.Key); err != nil {
			return nil, err
		}
		if v, err := t.outcome(ctx, h); v != nil || err != nil {
			return v, err
		}
	}
	var after driver.Instant
	r := &record{id: w.ID, Version: driver.Version{
		Collection: w.Collection, Key: w.Key, Number: 1, SupersededAt: driver.Forever,
		Op: w.Op, Deleted: w.Deleted, Author: w.Author, Message: w.Message, Group: w.Group, Changed: w.Changed, Data: w.Data,
	}}
	if h != nil {
		r.Number, after = h.Number+1, h.arrived()
	}
	var err error
	if r.RecordedAt, err = t.c.store.clock.takeOff(ctx, after); err != nil {
		return nil, err
	}
	began := t.c.store.clock.elapsed()
	made, err := t.send(ctx, h, r)
	if err != nil && uncertain(err) {
		t.doubt(r.RecordedAt, began)
		return nil, err
	}
	t.c.store.clock.land(r.RecordedAt)
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

// largeWrite is how much JSON there is, in bytes, in a write that may well be longer
// on its way than a lease lasts.
const largeWrite = 128 << 10

// send writes under the lease by which the version has its time.
func (t *committing) send(ctx context.Context, h *head, r *record) (*head, error) {
	clock := t.c.store.clock
	hold, size := bind, len(r.Data)
	if h != nil {
		size += len(h.Data) // it is sent again, as history
	}
	if size > largeWrite {
		hold = keep
	}
	ctx, cancel, err := hold(ctx, func() (time.Duration, error) { return clock.flightLeft(r.RecordedAt) })
	if err != nil {
		t.lapsed = true
		return nil, certain(err)
	}
	defer cancel()
	made, err := t.write(ctx, h, r)
	t.lapsed = errors.Is(err, context.DeadlineExceeded) || err != nil && ctx.Err() != nil
	return made, err
}

// write makes a version the current one, on condition that the head still is;
// without a head, that there is no document. It returns nil where that is not so.
func (t *committing) write(ctx context.Context, h *head, r *record) (*head, error) {
	current := encodeVersion(r)
	if h == nil {
		_, err := t.c.main.InsertOne(ctx, bson.D{
			{Key: "_id", Value: encodeString(r.Key)}, {Key: "n", Value: int64(0)}, {Key: "size", Value: int64(0)}, {Key: "current", Value: embedded(current)},
		})
		if mongo.IsDuplicateKeyError(err) && !isForeignIndex(err) {
			return nil, nil
		}
		return &head{record: *r}, err
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
	condition := append(guard(h.Key, h.Number, h.RecordedAt), bson.E{Key: "n", Value: h.n})
	result, err := t.c.main.UpdateOne(ctx, condition, change)
	if err != nil || result.MatchedCount == 0 {
		return nil, err
	}
	return made, nil
}

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
		return command.HasErrorLabel("NetworkError") || command.HasErrorLabel("RetryableWriteError") || mongo.IsTimeout(err)
	}
	return true
}
