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
//   - References resolve at the instant of the document that holds them, unless
//     an argument names another.
//   - An operation loads at most 100,000 documents and follows at most 500,000
//     references, since lists in documents can be long and a loader keeps what it
//     has read. Empty references count too. An operation that
//     needs more fails with QUERY_TOO_COMPLEX.
//   - Results come in the order of the keys, with a null for each document that
//     does not exist, whatever the order in which the store returns them.
package dataloader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// loader is what one operation has loaded. Its fields may be resolved at the same time: then they load one after the
// other, and who comes later finds what was loaded.
type loader struct {
	store   *storage.Store
	mu      sync.Mutex
	levels  Levels
	refused error // once the operation wanted too much, it gets nothing more
}

// The most documents that one operation may load, and references that it may
// follow; and how many are loaded beside what is asked for, as others will be asked for them.
const (
	MaxDocs     = 100_000
	MaxFollowed = 500_000
	together    = 10_000
)

// errTooMany returns the error for an operation that needs more.
func errTooMany() error {
	return &fault.Error{Code: fault.CodeQueryTooComplex, Message: fmt.Sprintf(
		"the documents of this answer refer to too many others: at most %d can be loaded, and %d references followed, in one operation; ask for fewer documents at a time",
		MaxDocs, MaxFollowed)}
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
	if key == (loaderKey{}) {
		return &c.loader
	}
	return c.Context.Value(key)
}

// Refs returns the documents that a list of references in d points at, with the
// zero T for each one that does not exist, and for each one that was pruned, with the error.
func Refs[T storage.AnyDocument](ctx context.Context, coll *storage.Collection[T], d *storage.Document, field int, asOf *driver.Instant) (found []T, bad []storage.ElementError, err error) {
	docs, err := load(ctx, coll.Store(), coll.Type(), d, field, asOf)
	if err != nil || docs == nil {
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
	found, err := single(ctx, coll.Store(), coll.Type(), d, field, asOf)
	return coll.Wrap(found), err
}

// single returns the document that a single reference points at; nil where there is none.
func single(ctx context.Context, store *storage.Store, t *record.Type, d *storage.Document, field int, asOf *driver.Instant) (*storage.Document, error) {
	docs, err := load(ctx, store, t, d, field, asOf)
	if err != nil || docs == nil {
		return nil, err
	}
	if err := storage.PrunedError(ctx, docs[0]); err != nil {
		return nil, err
	}
	return docs[0], nil
}

// Copy returns what a copied field of d reads as, as read reads it where it is copied from; nil
// where there is nothing to copy.
func Copy[V any](ctx context.Context, store *storage.Store, d *storage.Document, name string, read func(o *storage.Object, field int) (*V, error)) (*V, error) {
	c := d.Type().Copy(name)
	from, err := single(ctx, store, c.Of, d, c.Ref, nil)
	if err != nil || from == nil {
		return nil, err
	}
	o, field, err := storage.SourceOf(c, from)
	if err != nil || o == nil {
		return nil, err
	}
	return read(o, field)
}

// load returns the documents that a field refers to, nil for each one that does not exist; nil where the field is
// null. Where they are still to be read, it reads those with them that the siblings of d refer to.
func load(ctx context.Context, store *storage.Store, t *record.Type, d *storage.Document, field int, asOf *driver.Instant) ([]*storage.Document, error) {
	l, ok := ctx.Value(loaderKey{}).(*loader)
	if !ok {
		l = &loader{store: store} // nothing is shared between calls
	}
	if err := ctx.Err(); err != nil {
		return nil, storage.Unanswered(ctx, err)
	}
	if asOf != nil {
		if err := store.CheckInstant(ctx, *asOf); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != nil { // the keys need not be looked at
		return nil, l.refused
	}
	keys, null, err := d.AppendRefs(nil, field)
	if err != nil {
		return nil, err
	}
	var places []Place
	if err := l.levels.Follow(max(len(keys), 1)); err != nil { // empty references count, too
		l.refused = err
		return nil, err
	}
	want := func(of *storage.Document, keys ...[]byte) error {
		at, pinned := of.At(), of.Pinned()
		if asOf != nil {
			at, pinned = *asOf, true
		}
		places, err = l.levels.want(places, t, at, pinned, keys)
		return err
	}
	if l.refused = want(d, keys...); l.refused != nil {
		return nil, l.refused
	}
	own := len(places)
	if slices.ContainsFunc(places, Place.Wanted) {
		if most := min(l.levels.loaded+together, MaxDocs); own < together {
			d.EachRef(field, func(of *storage.Document, key string) bool {
				return l.levels.loaded < most && want(of, []byte(key)) == nil
			})
		}
		docs, err := l.store.GetKeys(ctx, t, l.levels.Missing(t), nil)
		l.levels.Fill(t, docs)
		if err != nil {
			if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.CodeQueryTooComplex {
				l.refused = err
			}
			return nil, err
		}
	}
	if null {
		return nil, nil
	}
	found := make([]*storage.Document, own)
	for i, p := range places[:own] { // while nobody else fills what they are in
		found[i] = p.in.docs[p.n]
	}
	return found, nil
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
	if err := l.Follow(len(keys)); err != nil {
		return places, err
	}
	return l.want(places, t, at, pinned, keys)
}

// want is Want without following.
func (l *Levels) want(places []Place, t *record.Type, at driver.Instant, pinned bool, keys [][]byte) ([]Place, error) {
	c := l.cohort(cohortKey{t, at, pinned})
	for _, key := range keys {
		n, there := c.places[string(key)]
		if !there {
			if l.loaded >= MaxDocs {
				return places, l.Follow(MaxFollowed + 1)
			}
			n = len(c.keys)
			c.keys = append(c.keys, string(key))
			l.loaded += weight(c.keys[n])
			c.places[c.keys[n]] = n
		}
		places = append(places, Place{c, n})
	}
	return places, nil
}

// weight is how many documents one with a key counts as, since keys are kept, too.
func weight(key string) int { return 1 + len(key)/128 }

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
		l.loaded -= weight(key)
	}
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
