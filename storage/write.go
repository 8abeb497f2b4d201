package storage

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
)

// mergeAttempts bounds how often a merge is tried while others write, and to create
// what others create and delete.
const mergeAttempts = 10

// outcome is what a write came to.
type outcome struct {
	doc             *Document
	before, version *driver.Version // before may be nil
	changed, merged bool
	conflict        *conflict
}

// finish turns an outcome into the member of the GraphQL union.
func finish[T AnyDocument](ctx context.Context, c *Collection[T], o *outcome, err error, clientMutationID *string) (any, error) {
	if err != nil {
		return nil, Unwritten(err)
	}
	if k := o.conflict; k != nil {
		return &Conflict[T]{
			Message: k.message, ExpectedVersion: k.expected, ActualVersion: k.actual, Current: c.Wrap(k.current), Base: c.Wrap(k.base),
			OverlappingPaths: k.overlapping, Mergeable: k.mergeable, since: k.since,
		}, nil
	}
	return &Success[T]{
		Document: c.Wrap(o.doc), Version: int(o.version.Number), DeletedID: encodeID(c.t.Name, o.version.Key, 0),
		Changed: o.changed, Merged: o.merged, ClientMutationID: clientMutationID,
		changes: func() ([]*FieldChange, error) {
			if !o.changed {
				return []*FieldChange{}, nil
			}
			return c.store.listChanges(ctx, c.t, o.before, o.version, o.version, o.version.RecordedAt)
		},
	}, nil
}

// unconfirmed is said of a commit that may have happened.
const unconfirmed = "the store did not confirm the write: it may or may not have happened; read the document's version, or send the same write again, which is never applied twice"

// Unwritten is the error of a write, with the certainty that nothing was written
// where the store was not available: everything goes before the commit, so that
// only a commit that was not confirmed lacks it.
func Unwritten(err error) error {
	const nothing = "; nothing was written"
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeUnavailable || e.Message == unconfirmed || strings.HasSuffix(e.Message, nothing) {
		return err
	}
	return &Error{Code: e.Code, Message: e.Message + nothing, Cause: err}
}

// Create makes a document that does not exist: a *Success[T], or a *Conflict[T]
// if it does. A key that was deleted can be used again; its numbers go on.
func (c *Collection[T]) Create(ctx context.Context, in CreateInput) (any, error) {
	o, err := c.store.create(ctx, c.t, in)
	return finish(ctx, c, o, err, in.ClientMutationID)
}

// Update patches a document: a *Success[T], or a *Conflict[T] if the document
// is not at the expected version and the patch could or should not be merged.
func (c *Collection[T]) Update(ctx context.Context, in UpdateInput) (any, error) {
	o, err := c.store.update(ctx, c.t, in)
	return finish(ctx, c, o, err, in.ClientMutationID)
}

// Delete deletes a document: a *Success[T] with the document as it was, or a
// *Conflict[T].
func (c *Collection[T]) Delete(ctx context.Context, in DeleteInput) (any, error) {
	o, err := c.store.remove(ctx, c.t, in)
	return finish(ctx, c, o, err, in.ClientMutationID)
}

// Restore writes the state of an earlier version, or parts of it, as a new
// version: a *Success[T] or a *Conflict[T]. It also brings a deleted document
// back.
func (c *Collection[T]) Restore(ctx context.Context, in RestoreInput) (any, error) {
	o, err := c.store.restore(ctx, c.t, in)
	return finish(ctx, c, o, err, in.ClientMutationID)
}

// request checks what all writes have in common and returns the operation.
func (s *Store) request(ctx context.Context, key string, expected int, message *string) (*operation, error) {
	if why := KeyProblem(key); why != "" {
		return nil, badInput("input.key: the key %s", why)
	}
	if expected < 1 {
		return nil, badInput("input.expectedVersion: %d is not the number of a version: they are counted from 1", expected)
	}
	if message != nil && (len(*message) > maxMessage || !utf8.ValidString(*message)) {
		return nil, badInput("input.message: a message is valid UTF-8 of at most %d bytes", maxMessage)
	}
	return s.operation(ctx)
}

func (s *Store) create(ctx context.Context, t *Type, in CreateInput) (*outcome, error) {
	op, err := s.request(ctx, in.Key, 1, in.Message)
	if err != nil {
		return nil, err
	}
	data, err := s.patched(t, nil, in.Data, "input.data")
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		v, err := s.commit(ctx, op, t, in.Message, driver.Write{
			Key: in.Key, Expected: 0, Op: driver.OpCreate, Changed: normal.Changed(nil, data), Data: data,
		})
		if err == nil {
			return s.wrote(t, nil, v), nil
		}
		if !isConflict(err) {
			return nil, err
		}
		cur, err := s.current(ctx, t, in.Key)
		if err != nil {
			return nil, err
		}
		if live(cur) || attempt > mergeAttempts { // else somebody has deleted it since
			k, err := s.newConflict(ctx, op, t, in.Key, 0, cur, nil)
			return s.lost(ctx, op, k, err)
		}
	}
}

func (s *Store) update(ctx context.Context, t *Type, in UpdateInput) (*outcome, error) {
	op, err := s.request(ctx, in.Key, in.ExpectedVersion, in.Message)
	if err != nil {
		return nil, err
	}
	merge := in.OnConflict != nil && *in.OnConflict == Merge
	for attempt := 1; ; attempt++ {
		cur, asked, err := s.base(ctx, t, in.Key, in.ExpectedVersion, attempt > 1)
		if err != nil {
			return nil, err
		}
		merged := false
		if !live(cur) || cur.Number != int64(in.ExpectedVersion) {
			k, err := s.newConflict(ctx, op, t, in.Key, in.ExpectedVersion, cur, in.Patch)
			if err != nil || !merge || !k.mergeable || attempt > mergeAttempts {
				return s.lost(ctx, op, k, err)
			}
			merged = true
		}
		data, err := s.patched(t, cur.Data, in.Patch, "input.patch")
		if err != nil {
			return nil, err
		}
		changed := normal.Changed(cur.Data, data)
		if len(changed) == 0 && !asked {
			continue // nothing is committed, so nothing compares
		}
		if len(changed) == 0 {
			o, err := s.wroteNothing(ctx, op, t, cur)
			if err != nil {
				return nil, err
			}
			o.merged = merged
			return o, nil
		}
		v, err := s.commit(ctx, op, t, in.Message, driver.Write{
			Key: in.Key, Expected: cur.Number, Op: driver.OpUpdate, Changed: changed, Data: data,
		})
		if isConflict(err) && attempt <= mergeAttempts {
			continue // somebody was faster: look at what is there now
		}
		if err != nil {
			return nil, fromDriver(ctx, err)
		}
		o := s.wrote(t, cur, v)
		o.merged = merged
		return o, nil
	}
}

func (s *Store) remove(ctx context.Context, t *Type, in DeleteInput) (*outcome, error) {
	op, err := s.request(ctx, in.Key, in.ExpectedVersion, in.Message)
	if err != nil {
		return nil, err
	}
	cur, _, err := s.base(ctx, t, in.Key, in.ExpectedVersion, false)
	if err != nil {
		return nil, err
	}
	if live(cur) && cur.Number == int64(in.ExpectedVersion) {
		v, err := s.commit(ctx, op, t, in.Message, driver.Write{
			Key: in.Key, Expected: cur.Number, Op: driver.OpDelete, Deleted: true, Changed: normal.Changed(cur.Data, nil),
		})
		if err == nil {
			was := *cur
			was.SupersededAt = v.RecordedAt
			o := s.wrote(t, cur, v)
			o.doc = s.newDocument(t, &was, was.RecordedAt, v.RecordedAt, true)
			return o, nil
		}
		if !isConflict(err) {
			return nil, err
		}
		if cur, err = s.current(ctx, t, in.Key); err != nil {
			return nil, err
		}
	}
	k, err := s.newConflict(ctx, op, t, in.Key, in.ExpectedVersion, cur, nil)
	return s.lost(ctx, op, k, err)
}

// wrote is the outcome of a committed write.
func (s *Store) wrote(t *Type, before, v *driver.Version) *outcome {
	o := &outcome{before: before, version: v, changed: true}
	if !v.Deleted {
		o.doc = s.newDocument(t, v, v.RecordedAt, v.RecordedAt, false)
	}
	return o
}

// wroteNothing is the outcome of a write that would have changed nothing.
func (s *Store) wroteNothing(ctx context.Context, op *operation, t *Type, cur *driver.Version) (*outcome, error) {
	at := op.now(cur)
	return &outcome{version: cur, doc: s.newDocument(t, cur, at, at, false)}, s.shows(ctx, op, at)
}

// now is the instant at which a mutation sees a version: the operation's, or
// that of the version if it is newer.
func (o *operation) now(v *driver.Version) driver.Instant {
	at := max(o.begin, driver.Instant(o.last.Load()))
	if v != nil {
		at = max(at, v.RecordedAt)
	}
	return at
}

// shows waits until nothing can be committed any more at or before the instant
// at which a mutation shows a document. A version that was read as the very
// last one may not have been acknowledged yet.
func (s *Store) shows(ctx context.Context, op *operation, at driver.Instant) error {
	if at <= op.begin {
		return nil
	}
	switch err := s.engine.Settle(ctx, at); {
	case driver.CodeOf(err) == driver.CodeInvalid: // not an instant that the client has named
		return &Error{Code: CodeUnavailable, Message: "the document was last written at " + at.String() + ", where the store's clock is not yet; try again", Cause: err}
	case err != nil:
		return fromDriver(ctx, err)
	}
	op.reached(at)
	return nil
}

// current returns a document's last version, which may be a tombstone; nil for
// none.
func (s *Store) current(ctx context.Context, t *Type, key string) (*driver.Version, error) {
	return s.getOne(ctx, t, driver.Ref{Key: key, At: latest})
}

// base returns what a write on an expected version is made from: that version,
// where the engine remembers it and ask is false, and the commit then finds out
// whether it still is the last one; otherwise the last one, and asked is true.
func (s *Store) base(ctx context.Context, t *Type, key string, expected int, ask bool) (v *driver.Version, asked bool, err error) {
	if s.rememberer != nil && !ask {
		v, err := s.rememberer.Remembered(ctx, t.Collection, key, int64(expected))
		if err != nil || live(v) {
			return v, false, fromDriver(ctx, err)
		}
	}
	v, err = s.current(ctx, t, key)
	return v, true, err
}

func live(v *driver.Version) bool { return v != nil && !v.Deleted }

func isConflict(err error) bool {
	var c *driver.ConflictError
	return errors.As(err, &c)
}

// commit makes a version. A lost race is returned as the engine's
// *driver.ConflictError, everything else as *Error.
func (s *Store) commit(ctx context.Context, op *operation, t *Type, message *string, w driver.Write) (*driver.Version, error) {
	w.ID, w.Collection, w.Author, w.Group = newID(), t.Collection, actorOf(ctx).ID, op.group()
	if message != nil {
		w.Message = *message
	}
	v, err := driver.CommitOne(ctx, s.engine, &w)
	s.loaded.forget(w.Collection, w.Key)
	switch refused := driver.RefusalOf(err); {
	case err == nil:
		s.feed.wake()
		op.reached(v.RecordedAt)
		s.noteName(ctx)
		return v, nil
	case isConflict(err):
		return nil, err
	case refused != "":
		return nil, &Error{Code: CodeUnavailable, Message: refused + "; nothing was written", Cause: err}
	case driver.CodeOf(err) == driver.CodeUnavailable || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return nil, &Error{Code: CodeUnavailable, Message: unconfirmed, Cause: err}
	}
	return nil, fromDriver(ctx, err)
}
