package storage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// mergeAttempts bounds how often a merge is tried while others write, and to create
// what others create and delete.
const mergeAttempts = 10

// What a commit of several may have together: its documents, before and after it, and its messages,
// in bytes, as all are held and compared until it is done; and what it changes, as changedElements counts.
const (
	maxCommitBytes    = 3 << 20
	maxCommitElements = 2 * maxEntries // one document may have all of its own replaced
)

// outcome is what a write came to.
type outcome struct {
	doc             *Document
	before, version *driver.Version // before may be nil
	changed, merged bool
	conflict        *conflict
}

// alone makes one mutation, in the change group of its operation, and returns the member
// of the GraphQL union. The error is that of what made the mutation.
func (c *Collection[T]) alone(ctx context.Context, m *mutation, err error) (any, error) {
	if err != nil {
		return nil, Unwritten(err)
	}
	op, err := c.store.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	outs, err := c.store.mutateDrafts(ctx, op, op.group()+m.approval, m)
	return c.result(ctx, m, outs, err)
}

// result is the member of the GraphQL union for the outcome of one mutation.
func (c *Collection[T]) result(ctx context.Context, m *mutation, outs []*outcome, err error) (any, error) {
	switch {
	case err != nil:
		return nil, Unwritten(err)
	case outs[0].conflict != nil:
		return c.conflict(outs[0].conflict), nil
	}
	out := success(ctx, c.store, c.t, c.wrap, outs[0], m.clientMutationID)
	if v := outs[0].version; v.Deleted && v.Op == driver.OpErase { // else it would show what was erased
		out.Document = c.Wrap(nil)
	}
	return out, nil
}

// success is what a mutation of a document returns that was not in conflict.
func success[T any](ctx context.Context, s *Store, t *record.Type, wrap func(*Document) T, o *outcome, clientMutationID *string) *Success[T] {
	out := &Success[T]{
		Document: wrap(o.doc), Version: int(o.version.Number), Changed: o.changed, Merged: o.merged, ClientMutationID: clientMutationID,
		changes: func() ([]*FieldChange, error) {
			if !o.changed {
				return []*FieldChange{}, nil
			}
			ctx := context.WithoutCancel(ctx) // it is written: one field too late would take the whole answer away
			return s.listChanges(ctx, t, o.before, o.version, o.version, o.version.RecordedAt)
		},
	}
	if o.version.Deleted {
		id := encodeID(t.Name, o.version.Key, 0)
		out.DeletedID = &id
	}
	return out
}

// unconfirmed is said of a commit that may have happened.
const unconfirmed = "the store did not confirm the write: it may or may not have happened; read the document's version, or send the same write again, which is never applied twice"

// Unwritten is the error of a write, with the certainty that nothing was written
// where the store was not available: everything goes before the commit, so that
// only a commit that was not confirmed lacks it.
func Unwritten(err error) error {
	const nothing = "; nothing was written"
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != fault.CodeUnavailable || e.Message == unconfirmed || strings.HasSuffix(e.Message, nothing) {
		return err
	}
	return &fault.Error{Code: e.Code, Message: e.Message + nothing, Cause: e.Cause}
}

// Create makes a document that does not exist: a *Success[T], or a *Conflict[T]
// if it does. A key that was deleted can be used again; its numbers go on.
func (c *Collection[T]) Create(ctx context.Context, in CreateInput) (any, error) {
	m, err := c.store.creation(c.t, &in)
	return c.alone(ctx, m, err)
}

// Update patches a document: a *Success[T], or a *Conflict[T] if the document
// is not at the expected version and the patch could or should not be merged.
func (c *Collection[T]) Update(ctx context.Context, in UpdateInput) (any, error) {
	m, err := c.store.revision(c.t, &in)
	return c.alone(ctx, m, err)
}

// Delete deletes a document: a *Success[T] with the document as it was, or a
// *Conflict[T].
func (c *Collection[T]) Delete(ctx context.Context, in DeleteInput) (any, error) {
	m, err := c.store.deletion(c.t, &in)
	return c.alone(ctx, m, err)
}

// Restore writes the state of an earlier version, or parts of it, as a new
// version: a *Success[T] or a *Conflict[T]. It also brings a deleted document
// back.
func (c *Collection[T]) Restore(ctx context.Context, in RestoreInput) (any, error) {
	m, err := c.store.restoration(c.t, &in)
	return c.alone(ctx, m, err)
}

// mutation is what a client asks of one document.
type mutation struct {
	t        *record.Type
	path     string // of its input, among others; "" where it is alone
	key      string
	expected int // 0: the document must not exist
	message  *string
	// clientMutationID is returned as it was given.
	clientMutationID *string
	// tombstone says that the expected version may be a deletion.
	tombstone bool
	// blind says that the expected version need not be readable in today's form.
	blind bool
	// draft is the draft that the mutation approves, which ends with it; nil: none.
	draft    *driver.Version
	approval string         // what the group of its approval has behind the id
	author   string         // of the version; "": who acts
	patch    map[string]any // of an update
	merge    bool           // the patch may be applied to a later version than the expected one
	// next returns what is written after the current version; nil where that would
	// change nothing.
	next func(ctx context.Context, op *operation, cur *driver.Version) (*driver.Write, error)
}

// creation is the mutation of Create.
func (s *Store) creation(t *record.Type, in *CreateInput) (*mutation, error) {
	m := &mutation{t: t, key: in.Key, message: in.Message, clientMutationID: in.ClientMutationID}
	if err := m.check(); err != nil {
		return m, err
	}
	data, changed, err := s.patched(t, in.Key, nil, in.Data, "input.data")
	m.next = func(context.Context, *operation, *driver.Version) (*driver.Write, error) {
		return &driver.Write{Op: driver.OpCreate, Changed: changed, Data: data}, nil
	}
	return m, err
}

// revision is the mutation of Update.
func (s *Store) revision(t *record.Type, in *UpdateInput) (*mutation, error) {
	m := &mutation{
		t: t, key: in.Key, expected: in.ExpectedVersion, message: in.Message, clientMutationID: in.ClientMutationID, patch: in.Patch,
		merge: in.OnConflict != nil && *in.OnConflict == Merge,
	}
	m.next = func(_ context.Context, _ *operation, cur *driver.Version) (*driver.Write, error) {
		data, changed, err := s.patched(t, in.Key, cur.Data, in.Patch, "input.patch")
		if err != nil || len(changed) == 0 {
			return nil, err
		}
		return &driver.Write{Op: driver.OpUpdate, Changed: changed, Data: data}, nil
	}
	err := m.checkExpected()
	return m, err
}

// deletion is the mutation of Delete.
func (s *Store) deletion(t *record.Type, in *DeleteInput) (*mutation, error) {
	m := &mutation{t: t, key: in.Key, expected: in.ExpectedVersion, message: in.Message, clientMutationID: in.ClientMutationID}
	m.next = func(_ context.Context, _ *operation, cur *driver.Version) (*driver.Write, error) {
		return &driver.Write{Op: driver.OpDelete, Deleted: true, Changed: normal.Changed(cur.Data, nil)}, nil
	}
	err := m.checkExpected()
	return m, err
}

// ending is the mutation that deletes a draft or a tag which was read.
func (s *Store) ending(t *record.Type, v *driver.Version, message *string) *mutation {
	m, _ := s.deletion(t, &DeleteInput{Key: v.Key, ExpectedVersion: int(v.Number), Message: message})
	return m
}

// check checks what all mutations have in common.
func (m *mutation) check() error {
	if why := driver.KeyProblem(m.key); why != "" {
		return fault.BadInput("input.key: the key %s", why)
	}
	return checkMessage(m.message)
}

// checkExpected is check where a version is expected.
func (m *mutation) checkExpected() error {
	if err := m.check(); err != nil {
		return err
	}
	if m.expected < 1 {
		return fault.BadInput("input.expectedVersion: %d is not the number of a version: they are counted from 1", m.expected)
	}
	return nil
}

func checkMessage(message *string) error {
	if message != nil && (len(*message) > MaxMessage || !utf8.ValidString(*message)) {
		return fault.BadInput("input.message: a message is valid UTF-8 of at most %d bytes", MaxMessage)
	}
	return nil
}

// fits reports whether the version that was found is the expected one.
func (m *mutation) fits(cur *driver.Version) bool {
	if m.expected == 0 {
		return !live(cur)
	}
	return cur != nil && cur.Number == int64(m.expected) && (m.tombstone || !cur.Deleted)
}

// mutate makes mutations of different documents, all of them or, where one is in
// conflict, none. Outcomes are in the order of the mutations: of those that are in
// conflict, each has its own.
func (s *Store) mutate(ctx context.Context, op *operation, group string, ms ...*mutation) ([]*outcome, error) {
	known := 0                                 // so many are in conflict
	several := len(ms) > 1 && ms[0].path != "" // an approval alone ends its draft as well
	for attempt := 1; ; attempt++ {
		outs, ws := make([]*outcome, len(ms)), make([]driver.Write, 0, len(ms))
		lost, made, elements, bytes := 0, 0, 0, 0
		for i, m := range ms {
			if several && i > 0 && s.spent(ctx, .5) { // the rest is for writing them
				return nil, fault.Errorf(fault.CodeUnavailable, "%s and those before it took half of the time that this server allows (--max-execution): send several commits", ms[i-1].path)
			}
			o, w, err := s.prepare(ctx, op, m, len(ms) > 1 || attempt > 1, attempt > mergeAttempts)
			if err != nil {
				return nil, m.named(err)
			}
			outs[i] = o
			if o.before != nil {
				bytes += len(o.before.Data)
				if o.conflict != nil || o.merged { // it was compared with earlier versions
					bytes += len(o.before.Data)
				}
			}
			if w != nil {
				bytes += len(w.Data)
			}
			if m.message != nil { // each version has its own
				bytes += len(*m.message)
			}
			if several && bytes > maxCommitBytes {
				return nil, fault.BadInput("input.changes: the documents have more than %d bytes together, those before and after counted, and the message with each; nothing was written: send several commits", maxCommitBytes)
			}
			if o.conflict != nil {
				lost++
			}
			if lost > 0 {
				continue
			}
			if w == nil { // it still has to be the version that was expected
				w = &driver.Write{Compare: true}
			} else {
				made++
				if several {
					elements += changedElements(m.t, m.key, o.before, w)
				}
			}
			if elements > maxCommitElements {
				return nil, fault.BadInput("input.changes: the lists and fields with @index that are changed have more than %d elements together, those before and after counted, and long ones more; nothing was written: send several commits", maxCommitElements)
			}
			w.ID, w.Collection, w.Key, w.Group = newID(), m.t.Collection, m.key, group
			w.Author = cmp.Or(m.author, actorOf(ctx).ID)
			if m.expected > 0 {
				w.Expected = o.before.Number
			}
			if m.message != nil {
				w.Message = *m.message
			}
			ws = append(ws, *w)
		}
		if len(ms) > 1 && lost > known && attempt <= mergeAttempts {
			known = lost // what was read before them may have lost with them
			continue
		}
		if lost > 0 || made == 0 {
			return outs, s.unwritten(ctx, op, ms, outs)
		}
		known = 0
		vs, at, err := s.commit(ctx, op, ws)
		switch {
		case isConflict(err) && attempt <= mergeAttempts:
			continue // somebody was faster: look at what is there now
		case isConflict(err):
			return nil, &fault.Error{Code: fault.CodeUnavailable, Message: "others write the same without a pause; nothing was written; try again", Cause: err}
		case err != nil:
			return nil, err
		}
		for i, o := range outs {
			o.wrote(s, ms[i].t, vs[i], at)
		}
		return outs, nil
	}
}

// mutateDrafts is mutate for mutations of which some approve drafts, which end in the same
// commit. Errors: BAD_USER_INPUT for a draft that was saved meanwhile, NOT_FOUND for one that was
// approved or discarded, UNSUPPORTED on an engine that commits one write at a time.
func (s *Store) mutateDrafts(ctx context.Context, op *operation, group string, ms ...*mutation) ([]*outcome, error) {
	var approvals, ends []*mutation
	for _, m := range ms {
		if m.draft != nil {
			approvals, ends = append(approvals, m), append(ends, s.ending(m.t.Drafts, m.draft, nil))
		}
	}
	switch {
	case ends == nil:
		return s.mutate(ctx, op, group, ms...)
	case s.maxWrites == 1:
		return nil, approvals[0].named(fault.Errorf(fault.CodeUnsupported, "input.draft: the store of this server cannot write a version and end its draft at once; nothing was written: update or create the document with the draft's content, and discard the draft"))
	}
	outs, err := s.mutate(ctx, op, group, slices.Concat(ms, ends)...)
	if err != nil {
		return nil, err
	}
	outs, ended := outs[:len(ms)], outs[len(ms):]
	if slices.ContainsFunc(outs, func(o *outcome) bool { return o.conflict != nil }) {
		return outs, nil
	}
	for i, m := range approvals {
		switch now := ended[i].before; {
		case ended[i].conflict == nil:
		case showsDraft(ctx, m.t, now, op.begin):
			return nil, m.named(otherRevision(now.Number, m.draft.Number))
		default:
			return nil, m.named(noDraft(m.t, m.draft.Key))
		}
	}
	return outs, nil
}

// changedElements returns how much the fields count that a write changes, before and after: values that are
// indexed, as entries says; four elements of other lists, which are compared, as one.
func changedElements(t *record.Type, key string, before *driver.Version, w *driver.Write) (n int) {
	count := func(data []byte) {
		rawjson.Members(data, func(name []byte, start, end int) bool {
			if slices.ContainsFunc(w.Changed, func(c string) bool { return rawjson.Is(name, c) }) {
				elements, _ := rawjson.Lists(data[start:end])
				if i := t.Object.StoredAs(rawjson.View(name)); i >= 0 && t.Object.Fields[i].Indexed {
					n += entries(max(elements, 1), key, end-start)
				} else {
					n += elements / 4
				}
			}
			return true
		})
	}
	if before != nil {
		count(before.Data)
	}
	count(w.Data)
	return n
}

// named is an error of the mutation which says which of several it is.
func (m *mutation) named(err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if m.path == "" || !ok || e.Code == fault.CodeUnavailable {
		return err
	}
	message, ok := strings.CutPrefix(e.Message, "input")
	if !ok {
		message = ": " + message
	}
	return &fault.Error{Code: e.Code, Message: m.path + message, Cause: e.Cause, Earliest: e.Earliest}
}

// prepare finds out what a mutation comes to. Where the engine remembers the expected
// version and ask is false, it is not read, and the commit finds out whether it still is
// the last one. The write is nil where nothing would be changed, and where there is a
// conflict, as there is for each document that was changed since when the attempt is
// the last.
func (s *Store) prepare(ctx context.Context, op *operation, m *mutation, ask, last bool) (*outcome, *driver.Write, error) {
	cur, asked, err := s.base(ctx, m, ask)
	if err != nil {
		return nil, nil, err
	}
	o := &outcome{before: cur, version: cur}
	if !m.fits(cur) {
		k, err := s.newConflict(ctx, op, m, cur)
		if err != nil || !m.merge || !k.mergeable || last {
			o.conflict = k
			return o, nil, err
		}
		o.merged = true
	}
	w, err := m.next(ctx, op, cur)
	if err == nil && w == nil && !asked {
		return s.prepare(ctx, op, m, true, last) // nothing is committed, so nothing compares
	}
	if err == nil && w != nil {
		err = m.keepsImmutable(cur, w)
	}
	return o, w, err
}

// keepsImmutable returns BAD_USER_INPUT where a write would change an immutable field that has a
// value. What was erased is none, and erasing and deleting are no changes of that kind.
func (m *mutation) keepsImmutable(cur *driver.Version, w *driver.Write) error {
	if !live(cur) || w.Deleted || w.Op == driver.OpErase {
		return nil
	}
	for i := range m.t.Object.Fields {
		f := &m.t.Object.Fields[i]
		if !f.Immutable || !slices.Contains(w.Changed, f.Stored) {
			continue
		}
		if had := rawjson.Find(cur.Data, []string{f.Stored}); !rawjson.IsNull(had) && !rawjson.Erased(had) {
			return fault.BadInput("input: %s.%s is immutable, and %s %q has a value of it, which cannot be changed; leave it out, or delete the document and create it anew", m.t.Name, f.Name, m.t.Name, m.key)
		}
	}
	return nil
}

// unwritten completes the outcomes of mutations of which nothing is written: those
// that are in conflict, or else those that would change nothing.
func (s *Store) unwritten(ctx context.Context, op *operation, ms []*mutation, outs []*outcome) error {
	at := op.now(nil)
	for i, o := range outs {
		if k := o.conflict; k != nil {
			at = max(at, k.at)
			continue
		}
		now := op.now(o.before)
		at = max(at, now)
		if live(o.before) {
			o.doc = s.newDocument(ms[i].t, o.before, now, now, false)
		}
	}
	return s.shows(ctx, op, at)
}

// wrote completes the outcome of a mutation that was committed at an instant; the version
// is nil where it would have changed nothing. A deletion shows what was deleted.
func (o *outcome) wrote(s *Store, t *record.Type, v *driver.Version, at driver.Instant) {
	shown, from, pinned := o.before, at, false
	if v != nil {
		o.version, o.changed = v, true
	}
	switch {
	case v != nil && v.Deleted:
		was := *o.before
		was.SupersededAt = v.RecordedAt
		shown, from, pinned = &was, was.RecordedAt, true
	case v != nil:
		shown = v
	}
	o.doc = s.newDocument(t, shown, from, at, pinned)
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
		return &fault.Error{Code: fault.CodeUnavailable, Message: "the document was last written at " + at.String() + ", where the store's clock is not yet; try again", Cause: err}
	case err != nil:
		return fromDriver(ctx, err)
	}
	op.reached(at)
	return nil
}

// base returns what a mutation is made from: the last version, and asked is true; or,
// where ask is false, nothing for a new document, and the expected version where the
// engine remembers it.
func (s *Store) base(ctx context.Context, m *mutation, ask bool) (v *driver.Version, asked bool, err error) {
	switch {
	case ask, m.tombstone, (s.guard.types[m.t.Collection] != nil || s.migrating.types[m.t.Collection] != nil) && m.expected > 0:
	case m.expected == 0:
		return nil, false, nil
	case s.rememberer != nil:
		v, err := s.rememberer.Remembered(ctx, m.t.Collection, m.key, int64(m.expected))
		if err != nil || live(v) {
			return v, false, fromDriver(ctx, err)
		}
	}
	v, err = s.getOne(ctx, m.t, driver.Ref{Key: m.key, At: latest}, nil)
	if m.blind && isUnreadable(err) {
		if w := s.guard.view(ctx, m.t.Collection); w == nil || w.rows == nil {
			vs, err := s.all.Get(ctx, m.t.Collection, []driver.Ref{{Key: m.key, At: latest}}, nil)
			if err != nil {
				return nil, true, fromDriver(ctx, err)
			}
			return vs[0], true, nil
		}
	}
	return v, true, err
}

func live(v *driver.Version) bool { return v != nil && !v.Deleted }

func isConflict(err error) bool {
	_, is := errors.AsType[*driver.ConflictError](err)
	return is
}

// commit makes versions at an instant. A lost race is returned as the engine's
// *driver.ConflictError, everything else as *Error.
func (s *Store) commit(ctx context.Context, op *operation, ws []driver.Write) (vs []*driver.Version, at driver.Instant, err error) {
	for i := range ws {
		ws[i].Schema = s.schema.number
	}
	vs, err = s.engine.Commit(ctx, ws)
	if err == nil {
		s.feed.wake()
		for _, v := range vs {
			if v != nil {
				at = v.RecordedAt
			}
		}
		op.reached(at)
		if a := actorOf(ctx); a.Name != "" {
			s.noteName(ctx, op, a)
		}
		return vs, at, nil
	}
	switch refused := driver.RefusalOf(err); {
	case isConflict(err):
		return nil, 0, err
	case refused != "":
		return nil, 0, &fault.Error{Code: fault.CodeUnavailable, Message: refused + "; nothing was written", Cause: err}
	case driver.CodeOf(err) == driver.CodeUnavailable || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return nil, 0, &fault.Error{Code: fault.CodeUnavailable, Message: unconfirmed, Cause: err}
	}
	return nil, 0, fromDriver(ctx, err)
}

// patched applies a patch to a stored document, as RFC 7396 does but for one
// difference: lists and JSON values are replaced as a whole. An absent field is
// untouched, null removes the member or sets its default, nested objects are
// merged. Members keep their places, new ones come last, and what the type does
// not declare stays. What would read as it does now is not written: no read would
// show the difference.
// A nil document stands for one that is made now; then every non-null field
// without a default must be given, and fields that are not given, or null, get
// their defaults. They are stored, so that another default later changes
// nothing that was written before. The same goes for new nested objects.
// Changed are the stored names of the members that differ then.
func (s *Store) patched(t *record.Type, key string, doc []byte, patch map[string]any, path string) (out []byte, changed []string, err error) {
	out, changed, err = record.Patch(t.Object, doc, patch, path)
	if err != nil {
		return nil, nil, err
	}
	if why := s.outgrown(t, key, doc, out); why != "" {
		return nil, nil, fault.BadInput("%s: %s", path, why)
	}
	return out, changed, nil
}
