// Package storage gives documents their past. It holds all temporal meaning
// that does not need a database: instants, pinned ids, cursors, filters,
// changelogs, blame, diffs and writes; an engine of package driver keeps the
// bytes.
//
// Invariants:
//
//   - A document's stored bytes are never decoded as a whole to be read. They
//     are indexed once, and single values are read straight from them.
//   - Everything that one operation reads without naming a time is read at one
//     instant, chosen by Begin. Root fields do not influence each other.
//   - What was read at an instant never shows a later write: not in fields, not
//     in versionInfo, not in histories.
//   - Every write is decided by the engine's compare-and-swap. What this
//     package compares before it only saves work.
//   - Paths and names that users see are those of the GraphQL schema. Members
//     that the schema does not declare are kept and never shown.
//   - Errors are *Error: the message is for users, the cause is for operators.
package storage

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// Store gives the documents of an engine their types and their past. Its
// methods may be called from any number of goroutines.
type Store struct {
	engine       driver.Engine // as the context's actor sees it
	all          driver.Engine // the same, for the program itself
	guard        *guard
	distant      bool // the engine's database is reached over a network
	migrating    *migrating
	migrations   map[string]Migration // by type name
	schema       schema
	rememberer   driver.Rememberer // the engine, or nil
	maxWrites    int               // that the engine takes in one commit
	types        []*record.Type
	byName       map[string]*record.Type
	byCollection map[string]*record.Type
	models       map[string]models // by type name
	limits       Limits
	log          *slog.Logger
	pruning      sync.Map // the collections of types that keep all, and have pruned
	feed         feed
	names        actorNames
	spent        func(ctx context.Context, share float64) bool
	keep         func(ctx context.Context, bytes int) error
	comparing    chan struct{} // has a place for each pair of large documents that is compared for a write
}

// Limits bound what one request may ask for.
type Limits struct {
	PageDefault   int // documents in a page when neither first nor last says
	PageMax       int // documents in a page at most
	DocumentBytes int // size of a document at most
	Details       int // values in the blames, diffs and changes of an operation at most
}

// defaultLimits returns the limits of a store without WithLimits.
func defaultLimits() Limits {
	return Limits{PageDefault: 20, PageMax: 500, DocumentBytes: 8 << 20, Details: 25_000}
}

// Option configures a Store.
type Option func(*Store)

// WithLimits replaces the limits that are not zero.
func WithLimits(l Limits) Option {
	return func(s *Store) {
		set := func(to *int, v int) {
			if v > 0 {
				*to = v
			}
		}
		set(&s.limits.PageDefault, l.PageDefault)
		set(&s.limits.PageMax, l.PageMax)
		set(&s.limits.DocumentBytes, l.DocumentBytes)
		set(&s.limits.Details, l.Details)
	}
}

// WithLogger sets where the store logs; by default it does not.
func WithLogger(l *slog.Logger) Option { return func(s *Store) { s.log = l } }

// WithSpent sets how it is known that the context's operation has taken a share of the time that it
// may be executed for. The context of a mutation does not end with that, as what it did has to be
// reported; but it can be stopped before it has written anything, and where it compares versions.
func WithSpent(spent func(ctx context.Context, share float64) bool) Option {
	return func(s *Store) { s.spent = spent }
}

// WithMemory sets how bytes are counted that the context's operation keeps, and refused.
func WithMemory(keep func(ctx context.Context, bytes int) error) Option {
	return func(s *Store) {
		s.keep = func(ctx context.Context, bytes int) error {
			if err := keep(ctx, bytes); err != nil {
				return &fault.Error{Code: fault.CodeQueryTooComplex, Message: err.Error()}
			}
			return nil
		}
	}
}

// WithMigrations sets how documents that were written under earlier schemas are read, by the names of
// their types.
func WithMigrations(by map[string]Migration) Option { return func(s *Store) { s.migrations = by } }

// New makes a store of documents of the given types, which the generator has made and checked. It refuses migrations
// of types that there are not, and limits that contradict each other.
func New(engine driver.Engine, types []*record.Type, opts ...Option) (*Store, error) {
	own := ownTypes()
	record.Prepare(append(slices.Clone(types), own...))
	s := &Store{
		all: engine, types: types,
		byName: map[string]*record.Type{}, byCollection: map[string]*record.Type{}, models: map[string]models{}, maxWrites: driver.MaxWrites,
		comparing: make(chan struct{}, comparedTogether), limits: defaultLimits(), log: slog.New(slog.DiscardHandler),
		names: actorNames{by: lru.New[string, knownName](namesBytes)}, spent: func(context.Context, float64) bool { return false }, keep: func(context.Context, int) error { return nil },
	}
	for _, o := range opts {
		o(s)
	}
	if err := s.putInFront(engine); err != nil {
		return nil, err
	}
	_, s.distant = driver.As[driver.Distant](engine)
	s.rememberer, _ = driver.As[driver.Rememberer](engine)
	if b, ok := driver.As[driver.Batcher](engine); ok {
		s.maxWrites = b.MaxWrites()
	}
	for _, t := range own {
		s.byCollection[t.Collection] = t
	}
	for _, t := range types {
		s.byName[t.Name] = t
		if t.Was != "" {
			s.byName[t.Was] = t
		}
		for _, kept := range []*record.Type{t, t.Drafts, t.Tags} {
			s.byCollection[kept.Collection] = kept
		}
		NewCollection(s, t, func(d *Document) *Document { return d })
	}
	if s.limits.PageDefault > s.limits.PageMax {
		return nil, fmt.Errorf("storage: the default page size %d is above the maximum %d", s.limits.PageDefault, s.limits.PageMax)
	}
	return s, nil
}

// putInFront puts in front of the engine what has documents in today's form, and, in front of that, what hides
// them.
func (s *Store) putInFront(engine driver.Engine) (err error) {
	if s.migrating, err = migrate(engine, s.types, s.migrations, &s.schema); err != nil {
		return err
	}
	if len(s.migrating.types) > 0 {
		engine = s.migrating
	}
	s.engine, s.guard, err = protect(engine, s.types)
	return err
}

// Engine is where the documents are kept, for the program itself: nothing is hidden.
func (s *Store) Engine() driver.Engine { return s.all }

// Types are the types of the documents.
func (s *Store) Types() []*record.Type { return s.types }

// ByCollection returns the types by the collections that their documents are kept in, with
// those of drafts, of tags and of what asof notes for itself, which no schema has. It must not be modified.
func (s *Store) ByCollection() map[string]*record.Type { return s.byCollection }

// models makes what is shown of the documents of a type, which is not known.
type models interface {
	any(d *Document) AnyDocument
	conflict(k *conflict) VersionConflict
}

// wrapAny returns the model of a document.
func (s *Store) wrapAny(d *Document) AnyDocument { return s.models[d.t.Name].any(d) }

// Collection is the documents of one type, as models of type T.
type Collection[T AnyDocument] struct {
	store *Store
	t     *record.Type
	wrap  func(*Document) T
}

// NewCollection returns the documents of a type; wrap makes the model of one.
// It is called while the program is put together, before the store is used.
func NewCollection[T AnyDocument](s *Store, t *record.Type, wrap func(*Document) T) *Collection[T] {
	c := &Collection[T]{store: s, t: t, wrap: wrap}
	s.models[t.Name] = c
	return c
}

func (c *Collection[T]) any(d *Document) AnyDocument { return c.wrap(d) }

// Store is the store that the documents are in.
func (c *Collection[T]) Store() *Store { return c.store }

// Type is the type of the documents.
func (c *Collection[T]) Type() *record.Type { return c.t }

// Wrap returns the model of a document; the zero T for nil.
func (c *Collection[T]) Wrap(d *Document) T {
	if d == nil {
		var none T
		return none
	}
	return c.wrap(d)
}

// ownTypes are the types of what asof notes for itself, which no schema has.
func ownTypes() []*record.Type {
	return []*record.Type{actorType(), archiveType(), retentionType(), schemaType()}
}

// IsOwn reports whether a collection holds what asof notes for itself, and no documents.
func IsOwn(collection string) bool {
	return slices.ContainsFunc(ownTypes(), func(t *record.Type) bool { return t.Collection == collection })
}

// CollectionsOf says what an engine must hold for the types: a collection for
// each, with the indexes that they declare, one for its drafts, one for its tags, and those that asof has for itself.
func CollectionsOf(types []*record.Type) (out []driver.Collection) {
	for _, t := range ownTypes() {
		out = append(out, driver.Collection{Name: t.Collection})
	}
	for _, t := range types {
		out = append(out, t.Collections()...)
	}
	return out
}
