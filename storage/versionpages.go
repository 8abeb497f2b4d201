package storage

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/asof/asof/storage/driver"
)

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
		if len(l.log.Fields) > 0 {
			indexTogether(it.t, d)
		}
		pg.Docs[i], pg.entries = d, append(pg.entries, it.entry)
	}
	inBatch(pg.Docs)
	return pg, nil
}

// versionConnection shows a page of versions as models.
func versionConnection[T any](ctx context.Context, s *Store, pg *VersionPage, wrap func(*Document) T) *VersionConnection[T] {
	conn := &VersionConnection[T]{Edges: make([]*VersionEdge[T], len(pg.Docs)), Nodes: make([]T, len(pg.Docs)), PageInfo: pg.info(), count: pg.count}
	for i, d := range pg.Docs {
		e := pg.entries[i]
		conn.Nodes[i] = wrap(d)
		conn.Edges[i] = &VersionEdge[T]{
			Node:   conn.Nodes[i],
			cursor: func() string { return pg.cursorOf(i) },
			changes: func() ([]*FieldChange, error) {
				if err := ended(ctx); err != nil {
					return nil, err
				}
				if e.begins() {
					return nil, s.pruned(ctx, d.t, e.before)
				}
				return s.listChanges(ctx, d.t, e.before, e.version, e.version, d.seen)
			},
		}
	}
	return conn
}
