// Package dataloader resolves the references between documents, many at a time.
//
// Invariants:
//
//   - A loader lives as long as one operation and reads a document at an instant
//     once, whatever refers to it.
//   - The first access to a reference loads that reference for all documents
//     that were read together (a page, a list of references), in one read of
//     the store. Nothing waits for a timer: the documents know their siblings,
//     so a batch is complete when it is needed.
//   - The first access to the versions of a document reads those of all documents
//     that were read together with it, if it is by the same arguments, in the
//     same way.
//   - References resolve at the instant of the document that holds them, unless
//     an argument names another.
//   - An operation loads at most 100,000 documents and follows at most a million
//     references, since lists in documents can be long and a loader keeps what it
//     has read. Empty references and lists of versions count too. An operation that
//     needs more fails with QUERY_TOO_COMPLEX.
//   - Results come in the order of the keys, with a null for each document that
//     does not exist, whatever the order in which the store returns them.
package dataloader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// loader keeps what one operation has loaded.
type loader struct {
	store    *storage.Store
	mu       sync.Mutex
	docs     map[docKey]*entry
	followed int   // references
	refused  error // why the operation gets nothing more: it wanted too much
	// large are the fields that hold too many references in documents that were
	// read together: their references are loaded for one document at a time.
	large    map[siblings]bool
	versions map[versionsKey]*versions
}

type siblings struct {
	batch *storage.Batch
	t     *record.Type
	field int
}

// The most documents that one operation may load, and references that it may
// follow; and how many are loaded beside what is asked for, as others will be asked for them.
const (
	MaxDocs     = 100_000
	MaxFollowed = 1_000_000
	together    = 10_000
)

// errTooMany returns the error for an operation that needs more.
func errTooMany() error {
	return &fault.Error{Code: fault.CodeQueryTooComplex, Message: fmt.Sprintf(
		"the documents of this answer refer to too many others: at most %d can be loaded, and %d references followed, in one operation; ask for fewer documents at a time",
		MaxDocs, MaxFollowed)}
}

type docKey struct {
	t      *record.Type
	key    string
	at     driver.Instant
	pinned bool
}

// entry is a document: loaded once done is closed, and being loaded before.
type entry struct {
	done chan struct{}
	doc  *storage.Document
	err  error
}

type loaderKey struct{}

// Begin returns a context that carries a new loader for one operation, in one allocation: many
// operations load nothing.
func Begin(ctx context.Context, store *storage.Store) context.Context {
	return &loaderContext{Context: ctx, loader: loader{store: store}}
}

type loaderContext struct {
	context.Context
	loader loader
}

// Value returns the loader, or what the context has.
func (c *loaderContext) Value(key any) any {
	if key == (loaderKey{}) || key == (storage.VersionLoaderKey{}) {
		return &c.loader
	}
	return c.Context.Value(key)
}

// from returns the context's loader; without one, nothing is shared between calls.
func from(ctx context.Context, store *storage.Store) *loader {
	if l, ok := ctx.Value(loaderKey{}).(*loader); ok {
		return l
	}
	return &loader{store: store}
}

// Refs returns the documents that a list of references in d points at, with the
// zero T for each one that does not exist, and for each one that was pruned, with the error.
func Refs[T storage.AnyDocument](ctx context.Context, coll *storage.Collection[T], d *storage.Document, field int, asOf *driver.Instant) ([]T, []storage.ElementError, error) {
	return RefsIn(ctx, coll, &d.Object, field, asOf)
}

// RefsIn is Refs for an object nested in a document.
func RefsIn[T storage.AnyDocument](ctx context.Context, coll *storage.Collection[T], o *storage.Object, field int, asOf *driver.Instant) (found []T, bad []storage.ElementError, err error) {
	l := from(ctx, coll.Store())
	if err := l.follow(ctx, 0); err != nil { // the keys need not be looked at
		return nil, nil, err
	}
	keys, err := o.RefKeys(field)
	if err != nil {
		return nil, nil, err
	}
	docs, err := l.load(ctx, coll.Type(), o, field, keys, asOf)
	if err != nil || keys == nil {
		return nil, nil, err
	}
	found = make([]T, len(docs))
	for i, d := range docs {
		if err := storage.PrunedError(ctx, d); err != nil {
			bad = append(bad, storage.ElementError{Index: i, Err: err})
			continue
		}
		found[i] = coll.Wrap(d)
	}
	return found, bad, nil
}

// Ref returns the document that a single reference in d points at; the zero T
// where there is none.
func Ref[T storage.AnyDocument](ctx context.Context, coll *storage.Collection[T], d *storage.Document, field int, asOf *driver.Instant) (T, error) {
	return RefIn(ctx, coll, &d.Object, field, asOf)
}

// RefIn is Ref for an object nested in a document.
func RefIn[T storage.AnyDocument](ctx context.Context, coll *storage.Collection[T], o *storage.Object, field int, asOf *driver.Instant) (T, error) {
	d, err := single(ctx, coll.Store(), coll.Type(), o, field, asOf)
	if err != nil || d == nil {
		var none T
		return none, err
	}
	return coll.Wrap(d), nil
}

// single returns the document that a single reference points at; nil where there is none.
func single(ctx context.Context, store *storage.Store, t *record.Type, o *storage.Object, field int, asOf *driver.Instant) (*storage.Document, error) {
	key, err := o.RefKey(field)
	if err != nil {
		return nil, err
	}
	var keys []string
	if key != nil {
		keys = []string{*key}
	}
	docs, err := from(ctx, store).load(ctx, t, o, field, keys, asOf)
	if err != nil || key == nil {
		return nil, err
	}
	return docs[0], storage.PrunedError(ctx, docs[0])
}

// Copy returns what a copied field of d reads as, as read reads it where it is copied from; nil
// where there is nothing to copy.
func Copy[V any](ctx context.Context, store *storage.Store, d *storage.Document, name string, read func(o *storage.Object, field int) (*V, error)) (*V, error) {
	c := d.Type().Copy(name)
	from, err := single(ctx, store, c.Of, &d.Object, c.Ref, nil)
	if err != nil || from == nil {
		return nil, err
	}
	o, field, err := storage.SourceOf(c, from)
	if err != nil || o == nil {
		return nil, err
	}
	return read(o, field)
}

// load returns the documents with the keys, and loads in the same read what the
// siblings of o refer to.
func (l *loader) load(ctx context.Context, t *record.Type, o *storage.Object, field int, keys []string, asOf *driver.Instant) ([]*storage.Document, error) {
	if err := l.follow(ctx, max(len(keys), 1)); err != nil { // empty references count, too
		return nil, err
	}
	if asOf != nil {
		if err := l.store.CheckInstant(ctx, *asOf); err != nil {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	of := func(d *storage.Document, key string) docKey {
		if asOf != nil {
			return docKey{t, key, *asOf, true}
		}
		return docKey{t, key, d.At(), d.Pinned()}
	}
	wanted := make([]*entry, len(keys))
	var missing []docKey
	var started []*entry
	tooMany, most := false, MaxDocs
	done := make(chan struct{}) // of what is started here
	need := func(k docKey) *entry {
		e := l.docs[k]
		if e == nil {
			if tooMany = tooMany || len(l.docs) >= most; tooMany {
				return nil
			}
			e = &entry{done: done}
			l.docs[k] = e
			missing, started = append(missing, k), append(started, e)
		}
		return e
	}
	l.mu.Lock()
	if l.docs == nil {
		l.docs, l.large = map[docKey]*entry{}, map[siblings]bool{}
	}
	complete := true
	for i, key := range keys {
		if wanted[i] = l.docs[of(o.Of(), key)]; wanted[i] == nil {
			complete = false
		}
	}
	forget := func() { // no other goroutine has seen these entries
		for _, k := range missing {
			delete(l.docs, k)
		}
		missing, started, tooMany = nil, nil, false
	}
	own := func() {
		for i, key := range keys {
			wanted[i] = need(of(o.Of(), key))
		}
	}
	if read := (siblings{o.Of().Siblings(), t, field}); !complete {
		own()
		if !tooMany && !l.large[read] && len(keys) < together {
			most = min(most, len(l.docs)+together)
			o.EachRef(field, func(d *storage.Document, key string) bool { need(of(d, key)); return !tooMany })
			if most = MaxDocs; tooMany {
				forget()
				own()
				l.large[read] = read.batch != nil
			}
		}
	}
	if tooMany {
		forget()
		l.refused = errTooMany()
		l.mu.Unlock()
		return nil, l.refused
	}
	l.mu.Unlock()
	if len(missing) > 0 {
		l.fetch(ctx, t, missing, started)
	}
	docs := make([]*storage.Document, len(keys))
	for i, e := range wanted {
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, storage.Unanswered(ctx, ctx.Err())
		}
		if e.err != nil {
			return nil, e.err
		}
		docs[i] = e.doc
	}
	return docs, nil
}

// follow counts references that are followed. It returns an error where the operation has wanted
// too much, or is over.
func (l *loader) follow(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return storage.Unanswered(ctx, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followed += n; l.followed > MaxFollowed && l.refused == nil {
		l.refused = errTooMany()
	}
	return l.refused
}

// fetch reads documents in one call of the store and closes what their entries share, for the
// goroutines that wait for them. Entries that failed are removed, so that the
// documents can be read again.
func (l *loader) fetch(ctx context.Context, t *record.Type, keys []docKey, entries []*entry) {
	refs := make([]storage.KeyAt, len(keys))
	for i, k := range keys {
		refs[i] = storage.KeyAt{Key: k.key, At: k.at, Pinned: k.pinned}
	}
	finished := false
	defer func() {
		if finished {
			return
		}
		// The read panicked: no goroutine may wait for ever.
		for _, e := range entries {
			e.err = &fault.Error{Code: fault.CodeInternal, Message: "internal error"}
		}
		close(entries[0].done)
	}()
	docs, err := l.store.GetKeys(ctx, t, refs, nil)
	if err != nil {
		l.mu.Lock()
		for _, k := range keys {
			delete(l.docs, k)
		}
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.CodeQueryTooComplex {
			l.refused = err
		}
		l.mu.Unlock()
	}
	finished = true
	for i, e := range entries {
		if e.err = err; err == nil {
			e.doc = docs[i]
		}
	}
	close(entries[0].done)
}

// Levels is a loader for one goroutine that follows references level by level: the
// caller names all documents that a level refers to (Want), and reads them then
// (Missing, Fill). A document is read once for each instant. The zero value is
// ready for use.
type Levels struct {
	cohorts  map[cohortKey]*cohort
	order    []*cohort // as they were first met
	last     *cohort
	loaded   int
	followed int
}

// cohort is the documents of one type that are read at one instant.
type cohort struct {
	cohortKey
	places map[string]int
	keys   []string
	docs   []*storage.Document // of the first keys; the others are still to be read
}

type cohortKey struct {
	t      *record.Type
	at     driver.Instant
	pinned bool
}

// Place is where a document will be.
type Place struct {
	in *cohort
	n  int
}

// Wanted reports whether the document is still to be read.
func (p Place) Wanted() bool { return p.n >= len(p.in.docs) }

// Document is what was read; nil for one that does not exist, or was pruned.
func (p Place) Document() *storage.Document {
	if d := p.in.docs[p.n]; !storage.IsPruned(d) {
		return d
	}
	return nil
}

// Pruned is the error of reading what was pruned.
func (p Place) Pruned(ctx context.Context) error { return storage.PrunedError(ctx, p.in.docs[p.n]) }

// Want appends to places those of the documents of type t with the keys, as of an
// instant; pinned says that an argument named it. It returns an error where an operation may not
// load or follow that many, and always does then.
func (l *Levels) Want(places []Place, t *record.Type, at driver.Instant, pinned bool, keys [][]byte) ([]Place, error) {
	c := l.cohort(cohortKey{t, at, pinned})
	if err := l.Follow(len(keys)); err != nil {
		return places, err
	}
	for _, key := range keys {
		n, there := c.places[string(key)]
		if !there {
			if l.loaded >= MaxDocs {
				return places, l.Follow(MaxFollowed + 1)
			}
			l.loaded++
			n = len(c.keys)
			c.keys = append(c.keys, string(key))
			c.places[c.keys[n]] = n
		}
		places = append(places, Place{c, n})
	}
	return places, nil
}

// Follow counts references, and what costs as much as one. Once it has returned
// an error it always does.
func (l *Levels) Follow(n int) error {
	if l.followed += n; l.Full() {
		return errTooMany()
	}
	return nil
}

// Full reports whether Follow refuses more.
func (l *Levels) Full() bool { return l.followed > MaxFollowed }

func (l *Levels) cohort(k cohortKey) *cohort {
	if l.last != nil && l.last.cohortKey == k {
		return l.last
	}
	c := l.cohorts[k]
	if c == nil {
		c = &cohort{cohortKey: k, places: map[string]int{}}
		if l.cohorts == nil {
			l.cohorts = map[cohortKey]*cohort{}
		}
		l.cohorts[k], l.order = c, append(l.order, c)
	}
	l.last = c
	return c
}

// forget drops the keys from a place on, so that they can be wanted again.
func (l *Levels) forget(c *cohort, from int) {
	for _, key := range c.keys[from:] {
		delete(c.places, key)
	}
	l.loaded -= len(c.keys) - from
	c.keys = c.keys[:from]
}

// Missing are the documents of a type that are wanted and were not read.
func (l *Levels) Missing(t *record.Type) []storage.KeyAt {
	var missing []storage.KeyAt
	for _, c := range l.order {
		if c.t != t {
			continue
		}
		for _, key := range c.keys[len(c.docs):] {
			missing = append(missing, storage.KeyAt{Key: key, At: c.at, Pinned: c.pinned})
		}
	}
	return missing
}

// Fill stores the documents that were Missing, in that order. Nil says that they
// could not be read: they are dropped and can be wanted again.
func (l *Levels) Fill(t *record.Type, docs []*storage.Document) {
	for _, c := range l.order {
		n := len(c.keys) - len(c.docs)
		switch {
		case c.t != t || n == 0:
		case docs == nil:
			l.forget(c, len(c.docs))
		default:
			c.docs, docs = append(c.docs, docs[:n]...), docs[n:]
		}
	}
}

// Reset forgets all documents.
func (l *Levels) Reset() {
	clear(l.order)
	*l = Levels{order: l.order[:0]}
}

// versionsKey names the versions of documents that were read together, by one
// set of arguments; a document that was read alone is together with nothing.
type versionsKey struct {
	batch *storage.Batch
	alone *storage.Document
	args  string // as JSON, which distinguishes null from an empty list
}

// versions are the pages of all of them, complete once done is closed.
type versions struct {
	done  chan struct{}
	pages map[*storage.Document]storage.VersionsOf // of the documents that were asked for
}

// Versions implements storage.VersionLoader: it reads the versions of all
// documents that were read together with d, in one read of the store.
func (l *loader) Versions(ctx context.Context, d *storage.Document, args *storage.VersionsArgs) (*storage.VersionPage, error) {
	if err := l.follow(ctx, 1); err != nil {
		return nil, err
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, &fault.Error{Code: fault.CodeInternal, Message: "internal error", Cause: err}
	}
	k := versionsKey{batch: d.Siblings(), args: string(text)}
	docs := []*storage.Document{d}
	if k.batch == nil {
		k.alone = d
	} else {
		docs = siblingsOf(d)
	}
	l.mu.Lock()
	v := l.versions[k]
	first := v == nil
	if first {
		if l.versions == nil {
			l.versions = map[versionsKey]*versions{}
		}
		v = &versions{done: make(chan struct{})}
		l.versions[k] = v
	}
	l.mu.Unlock()
	if first {
		l.readVersions(ctx, v, docs, args)
	}
	select {
	case <-v.done:
	case <-ctx.Done():
		return nil, storage.Unanswered(ctx, ctx.Err())
	}
	found, ok := v.pages[d]
	if !ok { // reading them panicked
		return nil, &fault.Error{Code: fault.CodeInternal, Message: "internal error"}
	}
	return found.Page, found.Err
}

// siblingsOf are the documents of d's type that were read with it.
func siblingsOf(d *storage.Document) []*storage.Document {
	var docs []*storage.Document
	for _, other := range d.Siblings().Docs {
		if other != nil && other.Type() == d.Type() {
			docs = append(docs, other)
		}
	}
	return docs
}

// readVersions reads versions and closes done, also where reading panics, so that no
// goroutine waits for ever.
func (l *loader) readVersions(ctx context.Context, v *versions, docs []*storage.Document, args *storage.VersionsArgs) {
	defer close(v.done)
	found := l.store.VersionsTogether(ctx, docs, args)
	v.pages = make(map[*storage.Document]storage.VersionsOf, len(docs))
	for i, d := range docs {
		v.pages[d] = found[i]
	}
}
