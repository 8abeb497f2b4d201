package storage

import (
	"context"

	"github.com/asof/asof/storage/driver"
)

// paging is the checked form of first, after, last and before.
type paging struct {
	limit         int
	backward      bool
	after, before *string
}

// paging checks Relay's arguments. First and last exclude each other, as a page
// that is both has no useful meaning.
func (s *Store) paging(first *int, after *string, last *int, before *string) (paging, error) {
	p := paging{limit: s.limits.PageDefault, after: after, before: before}
	name, n := "first", first
	switch {
	case first != nil && last != nil:
		return p, badInput("first and last are both given: ask for the first or the last of a list")
	case last != nil:
		p.backward = true
		name, n = "last", last
	}
	if n == nil {
		return p, nil
	}
	if *n < 0 {
		return p, badInput("%s: %d is negative", name, *n)
	}
	if *n > s.limits.PageMax {
		return p, badInput("%s: %d is more than a page can hold; ask for at most %d and go on with the cursor", name, *n, s.limits.PageMax)
	}
	p.limit = *n
	return p, nil
}

// info says what lies around a page: more is whether the list goes on in the
// direction of the page. A cursor belongs to an element of the list, so there
// is always something on its other side.
func (p paging) info(more bool) *PageInfo {
	if p.backward {
		return &PageInfo{HasPreviousPage: more || p.after != nil, HasNextPage: p.before != nil}
	}
	return &PageInfo{HasNextPage: more || p.before != nil, HasPreviousPage: p.after != nil}
}

// trim cuts the element that was read to know whether there are more.
func trim[T any](p paging, items []T) ([]T, bool) {
	if len(items) <= p.limit {
		return items, false
	}
	if p.backward {
		return items[len(items)-p.limit:], true
	}
	return items[:p.limit], true
}

// Page returns a page of the documents as they were at one instant: that of
// asOf, of the cursor, or of the operation. It chooses each document's version
// first and filters then.
// Errors: BAD_USER_INPUT for arguments that are out of bounds or contradict
// each other, AS_OF_IN_FUTURE.
func (c *Collection[T]) Page(ctx context.Context, where map[string]any, orderBy []*OrderInput, first *int, after *string,
	last *int, before *string, asOf *driver.Instant,
) (*Connection[T], error) {
	pg, err := c.store.page(ctx, c.t, where, orderBy, first, after, last, before, asOf)
	if err != nil {
		return nil, err
	}
	conn := &Connection[T]{
		Edges: make([]*Edge[T], len(pg.docs)), Nodes: make([]T, len(pg.docs)), PageInfo: pg.info, count: pg.count,
	}
	edges := make([]Edge[T], len(pg.docs))
	for i, d := range pg.docs {
		conn.Nodes[i] = c.wrap(d)
		edges[i] = Edge[T]{Node: conn.Nodes[i], d: d, cursor: pg.cursor}
		conn.Edges[i] = &edges[i]
	}
	return conn, nil
}

type documentPage struct {
	docs   []*Document
	info   *PageInfo
	count  counter
	cursor func(*Document) string
}

func (s *Store) page(ctx context.Context, t *Type, where map[string]any, orderBy []*OrderInput, first *int, after *string,
	last *int, before *string, asOf *driver.Instant,
) (*documentPage, error) {
	op, err := s.operation(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.paging(first, after, last, before)
	if err != nil {
		return nil, err
	}
	q := &driver.Query{Collection: t.Collection, At: op.begin, Backward: p.backward, Limit: p.limit + 1}
	if q.Filter, err = s.filter(t, where); err != nil {
		return nil, err
	}
	if q.Order, err = s.order(t, orderBy); err != nil {
		return nil, err
	}
	if asOf != nil {
		q.At = *asOf
	}
	hash := argsHash(t.Name, where, orderBy)
	if err := placeCursors(q, p, hash, asOf); err != nil {
		return nil, err
	}
	if err := s.settled(ctx, op, q.At); err != nil {
		return nil, err
	}
	vs, err := s.engine.Query(ctx, q)
	if err != nil {
		return nil, fromDriver(err)
	}
	vs, more := trim(p, vs)
	pg := &documentPage{docs: make([]*Document, len(vs)), info: p.info(more)}
	docs := make([]Document, len(vs))
	for i, v := range vs {
		pg.docs[i] = &docs[i]
		s.fillDocument(pg.docs[i], t, v, q.At, q.At, asOf != nil)
	}
	inBatch(pg.docs)
	pg.cursor = func(d *Document) string {
		pos := position(d, q.Order)
		place := append(make([]any, 0, len(pos.Values)+1), pos.Key)
		for _, v := range pos.Values {
			place = append(place, v)
		}
		return encodeCursor(hash, q.At, place...)
	}
	if n := len(pg.docs); n > 0 {
		pg.info.start = func() string { return pg.cursor(pg.docs[0]) }
		pg.info.end = func() string { return pg.cursor(pg.docs[n-1]) }
	}
	pg.count = func(ctx context.Context) (int, error) {
		n, err := s.engine.Count(ctx, &driver.Query{Collection: t.Collection, At: q.At, Filter: q.Filter})
		return int(n), fromDriver(err)
	}
	return pg, nil
}

// placeCursors sets the query's bounds and its instant.
func placeCursors(q *driver.Query, p paging, hash string, asOf *driver.Instant) error {
	pinned := asOf != nil
	for _, c := range []struct {
		arg    string
		cursor *string
		to     **driver.Position
	}{{"after", p.after, &q.After}, {"before", p.before, &q.Before}} {
		if c.cursor == nil {
			continue
		}
		at, place, err := decodeCursor(c.arg, *c.cursor, hash, len(q.Order)+1)
		if err != nil {
			return err
		}
		if pinned && at != q.At {
			return badInput("%s: the cursor belongs to a list read at %s, not at %s", c.arg, at, q.At)
		}
		q.At, pinned = at, true
		pos := &driver.Position{}
		var ok bool
		if pos.Key, ok = place[0].(string); !ok {
			return badInput("%s: %s is not a cursor of this list", c.arg, quoteShort(*c.cursor))
		}
		for i, o := range q.Order {
			v, ok := cursorValue(o.Field.Kind, place[i+1])
			if !ok {
				return badInput("%s: %s is not a cursor of this list", c.arg, quoteShort(*c.cursor))
			}
			pos.Values = append(pos.Values, v)
		}
		*c.to = pos
	}
	return nil
}
