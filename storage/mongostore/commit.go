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

// The pauses between attempts.
const (
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
		err = refused(s.clock.refusal())
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
			ctx, done := s.causal(s.life)
			o.version, o.err = t.run(ctx)
			done()
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
		if err := s.clock.acknowledge(ctx, o.version.RecordedAt); err != nil {
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
		_, err := t.c.main.InsertOne(ctx, stub(w.Key))
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
	f, err := clock.takeOff(ctx, h.arrived(), clock.lifeOf(len(r.Data)+len(h.Data), len(t.uncertain)+t.rounds))
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
	clock.land(f)
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
