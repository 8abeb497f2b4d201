package storage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// History returns the way to a document's past, also when it is deleted; nil
// where it never existed.
func (c *Collection[T]) History(ctx context.Context, key string) (*History[T], error) {
	op, err := c.store.operation(ctx)
	if err != nil || driver.KeyProblem(key) != "" {
		return nil, err
	}
	v, err := c.store.getOne(ctx, c.t, driver.Ref{Key: key, At: op.begin}, nil)
	if err != nil || v == nil {
		return nil, err
	}
	h := &History[T]{Document: c.store.newDocument(c.t, v, op.begin, op.begin, false)}
	if !v.Deleted {
		h.Current = c.wrap(h.Document)
	}
	return h, nil
}

// Versions returns a page of the versions of a document, newest first, read
// with one range read. What happened after the document was read does not show.
func (c *Collection[T]) Versions(ctx context.Context, d *Document, from, to *driver.Instant, author *string, fields []string,
	first *int, after *string, last *int, before *string,
) (*VersionConnection[T], error) {
	pg, err := c.store.Versions(ctx, d, &VersionsArgs{
		From: from, To: to, Author: author, Fields: fields, First: first, After: after, Last: last, Before: before,
	})
	if err != nil {
		return nil, err
	}
	return versionConnection(ctx, c.store, pg, c.wrap), nil
}

// Diff returns the difference between two versions of a document; to is the one
// that was read where it is not given. At an instant before its first version the
// document is nothing. What happened after the document was read is in the future.
// Errors: BAD_USER_INPUT for a reference that names no version or two,
// VERSION_NOT_FOUND for a number, AS_OF_IN_FUTURE.
func (s *Store) Diff(ctx context.Context, d *Document, from VersionRef, to *VersionRef) (*DocumentDiff, error) {
	op, err := s.operation(ctx)
	if err != nil {
		return nil, err
	}
	before, err := s.compared(ctx, op, d, "from", &from)
	if err != nil {
		return nil, err
	}
	after, err := s.compared(ctx, op, d, "to", to)
	if err != nil {
		return nil, err
	}
	if err := ended(ctx); err != nil {
		return nil, err
	}
	changes, err := s.listChanges(ctx, d.t, before, after, d.v, d.seen)
	if err != nil {
		return nil, err
	}
	return &DocumentDiff{
		From: s.info(d.t, before, d.seen), To: s.info(d.t, after, d.seen), t: d.t, before: before, after: after,
		patch: sync.OnceValue(func() json.RawMessage { return jsonPatch(changes, !live(before), !live(after)) }),
		changes: sync.OnceValues(func() ([]*FieldChange, error) {
			if len(changes) == 0 {
				return []*FieldChange{}, nil
			}
			older, newer, back := before, after, false
			if after == nil || before != nil && before.Number > after.Number {
				older, newer, back = after, before, true
			}
			return changes, s.attribute(ctx, d.t, older, newer, changes, back)
		}),
	}, nil
}

// info is nil for no version.
func (s *Store) info(t *record.Type, v *driver.Version, seen driver.Instant) *VersionInfo {
	if v == nil {
		return nil
	}
	return &VersionInfo{typ: t, v: v, seen: seen}
}

func visibleState(t *record.Type, v *driver.Version) []byte {
	if !live(v) {
		return []byte("null")
	}
	return t.Object.Visible(v.Data)
}

// compared returns the version of a document that a reference names; the one that was read where none is given.
func (s *Store) compared(ctx context.Context, op *operation, d *Document, arg string, ref *VersionRef) (*driver.Version, error) {
	switch {
	case ref == nil:
		return d.v, nil
	case ref.Version == nil && ref.AsOf != nil && *ref.AsOf > d.seen:
		return nil, fault.Errorf(fault.CodeAsOfInFuture, "%s: asOf %s is after %s, at which the document was read; to compare with later states, read the document at a later moment",
			arg, *ref.AsOf, d.seen)
	}
	return s.referred(ctx, op, d.seen, d.t, d.v.Key, arg, *ref)
}

// referred returns the version that a reference names, which may be a tombstone; nil for an instant before the first
// one. Numbers that are not there at the instant now are none. The document was there
// when it was read: it is NOT_FOUND where the database was emptied since.
func (s *Store) referred(ctx context.Context, op *operation, now driver.Instant, t *record.Type, key, arg string, ref VersionRef) (*driver.Version, error) {
	switch {
	case ref.Version != nil && ref.AsOf != nil:
		return nil, fault.Errorf(fault.CodeAmbiguousVersion, "%s: version and asOf are both given: name the state by one of them", arg)
	case ref.Version != nil:
		v, err := s.numbered(ctx, now, t, key, *ref.Version, nil)
		if err == nil && v == nil {
			err = fault.Errorf(fault.CodeNotFound, "%s: there is no %s %q", arg, t.Name, key)
		}
		return v, err
	case ref.AsOf == nil:
		return nil, fault.BadInput("%s: name a version by its number (version) or by an instant (asOf)", arg)
	}
	if err := s.settled(ctx, op, *ref.AsOf); err != nil {
		return nil, err
	}
	return s.getOne(ctx, t, driver.Ref{Key: key, At: *ref.AsOf}, nil)
}

// VersionInfo describes a version as it was seen from an instant: what happened
// later does not show.
type VersionInfo struct {
	typ  *record.Type
	v    *driver.Version
	seen driver.Instant
}

// Number counts the document's versions from 1.
func (i *VersionInfo) Number() int { return int(i.v.Number) }

// RecordedAt is when the version was committed.
func (i *VersionInfo) RecordedAt() driver.Instant { return i.v.RecordedAt }

// SupersededAt is when the next version was committed; nil while there is none.
func (i *VersionInfo) SupersededAt() *driver.Instant {
	if i.IsCurrent() {
		return nil
	}
	at := i.v.SupersededAt
	return &at
}

// Author is who wrote the version.
func (i *VersionInfo) Author() *Actor { return &Actor{ID: i.v.Author} }

// Erased are the versions that have erased something of this one, by their numbers; not those that
// were pruned.
func (i *VersionInfo) Erased(ctx context.Context) ([]*VersionInfo, error) {
	out := []*VersionInfo{}
	op, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		return out, nil
	}
	by := []int64{messageErasedBy(i.v.Message)}
	vs, err := op.store.engine.Get(ctx, i.typ.Collection, []driver.Ref{{Key: i.v.Key, Number: i.v.Number}}, nil)
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	rawjson.EachErased(dataOf(vs[0]), func(_, _ int, _, number int64) { by = append(by, number) })
	slices.Sort(by)
	var refs []driver.Ref
	for _, number := range slices.Compact(by) {
		if number > 0 {
			refs = append(refs, driver.Ref{Key: i.v.Key, Number: number})
		}
	}
	if vs, err = op.store.engine.Get(ctx, i.typ.Collection, refs, []string{}); err != nil {
		return nil, fromDriver(ctx, err)
	}
	for _, v := range vs {
		if v != nil && v.Op == driver.OpErase {
			out = append(out, &VersionInfo{typ: i.typ, v: v, seen: i.seen})
		}
	}
	return out, nil
}

// ApprovedBy is who approved the draft that the version was made of; nil where it was none.
func (i *VersionInfo) ApprovedBy() *Actor { return approverOf(i.v.Group) }

// Hash is the hash of the version and of all before it (see package seal), in hexadecimal
// digits; nil where the version has none, as in a damaged store.
func (i *VersionInfo) Hash() *string { return optional(hex.EncodeToString(seal.Hash(i.v.Seal))) }

// Message is what the writer said about it; nil for nothing.
func (i *VersionInfo) Message() *string { return optional(i.v.Message) }

// Operation is what made the version.
func (i *VersionInfo) Operation() Operation { return Operation(condition.OperationName(i.v.Op)) }

// ChangeGroup is shared by versions that were written together; nil for none.
func (i *VersionInfo) ChangeGroup() *string { return groupOf(i.typ, i.v) }

// IsCurrent says that no later version was there at the instant of reading.
func (i *VersionInfo) IsCurrent() bool { return i.v.SupersededAt > i.seen }

// ChangedFields are the GraphQL names of the top-level fields in which the
// version differs from the one before, in the order of the schema; all of them
// where that one may not be read.
func (i *VersionInfo) ChangedFields(ctx context.Context) ([]string, error) {
	stored := i.v.Changed
	if op, ok := ctx.Value(operationKey{}).(*operation); ok {
		var err error
		if stored, err = op.store.guard.changed(ctx, i.v); err != nil {
			return nil, fromDriver(ctx, err)
		}
	}
	names := make([]string, 0, len(stored))
	changed := make(map[string]bool, len(stored))
	for _, name := range stored {
		changed[name] = true
	}
	for f := range i.typ.Object.Fields {
		if changed[i.typ.Object.Fields[f].Stored] {
			names = append(names, i.typ.Object.Fields[f].Name)
		}
	}
	return names, nil
}

// VersionsArgs are the arguments of a list of versions; they are only read.
type VersionsArgs struct {
	From, To *driver.Instant
	Author   *string
	Fields   []string // names of the GraphQL schema
	First    *int
	After    *string
	Last     *int
	Before   *string
	// Members are the stored names of the top-level members that the caller will
	// look at; nil: all, and the changes of each version, too.
	Members []string
}

// VersionPage is a page of versions, newest first.
type VersionPage struct {
	Page
	entries []entry
}

// Versions is Collection.Versions without models.
func (s *Store) Versions(ctx context.Context, d *Document, args *VersionsArgs) (*VersionPage, error) {
	op, p, err := s.paging(ctx, args.First, args.After, args.Last, args.Before)
	if err != nil {
		return nil, err
	}
	l := &changelog{store: s, seen: d.seen}
	empty, err := l.ofType(d.t, args.Fields, args.Author, args.From, args.To)
	if err != nil {
		return nil, err
	}
	l.log.Keys, l.log.Fields = []string{d.v.Key}, args.Members
	hash := argsHash("versions", d.t.Name, d.v.Key, args.From, args.To, args.Author, args.Fields)
	if empty {
		pg := &VersionPage{Page: Page{count: known(0)}}
		pg.HasNextPage, pg.HasPreviousPage = p.around(false)
		return pg, nil
	}
	pg, err := l.versions(ctx, op, hash, p)
	if w := s.guard.view(ctx, d.t.Collection); err == nil && args.From == nil && args.To == nil && !l.log.Hints.Any() &&
		d.v.RecordedAt <= l.seen && d.v.SupersededAt > l.seen && !s.prunes(d.t) && (w == nil || w.rows == nil) {
		pg.count = known(int(d.v.Number)) // the last one is here, and numbers have no gaps
	}
	return pg, err
}

// Together calls a function for the numbers below n, at most sixteen at a time where each call waits
// for a distant database.
func (s *Store) Together(n int, f func(i int)) {
	if !s.distant {
		for i := range n {
			f(i)
		}
		return
	}
	var calls errgroup.Group
	calls.SetLimit(callsAtATime)
	for i := range n {
		calls.Go(func() error { f(i); return nil })
	}
	_ = calls.Wait() // none fails
}

const callsAtATime = 16

// versions reads a page of the versions themselves.
func (l *changelog) versions(ctx context.Context, op *operation, hash string, p paging) (*VersionPage, error) {
	l.whole = true
	items, more, count, err := l.items(ctx, op, hash, p)
	if err != nil {
		return nil, err
	}
	docs := make([]Document, len(items))
	pg := &VersionPage{Page: Page{Docs: make([]*Document, len(items)), count: count}}
	pg.HasNextPage, pg.HasPreviousPage = p.around(more)
	pg.cursor = func(dst []byte, place int) []byte { return append(dst, items[place].cursor()...) }
	for i, it := range items {
		d := &docs[i]
		l.store.fillDocument(d, it.t, it.version, it.version.RecordedAt, l.seen, true)
		if it.version.Deleted && it.before != nil {
			d.raw = it.before.Data
		}
		pg.Docs[i], pg.entries = d, append(pg.entries, it.entry)
	}
	inBatch(pg.Docs)
	return pg, nil
}

// versionConnection shows a page of versions as models.
func versionConnection[T any](ctx context.Context, s *Store, pg *VersionPage, wrap func(*Document) T) *VersionConnection[T] {
	conn := connect(&pg.Page, wrap)
	conn.changes = func(place int) ([]*FieldChange, error) {
		d, e := pg.Docs[place], pg.entries[place]
		if err := ended(ctx); err != nil {
			return nil, err
		}
		if e.begins() {
			return nil, s.pruned(ctx, d.t, e.before)
		}
		return s.listChanges(ctx, d.t, e.before, e.version, e.version, d.seen)
	}
	return conn
}
