package sqlitestore

import (
	"bytes"
	"cmp"
	"context"

	"github.com/asof/asof/storage/driver"
)

// Query implements driver.Engine.
func (s *Store) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	r, err := s.newRun(ctx, q)
	if err != nil {
		return nil, err
	}
	var out []*driver.Version
	err = s.read(ctx, func(c *conn) error {
		if err := r.begin(c); err != nil {
			return err
		}
		out, err = r.page()
		return err
	})
	return out, wrap(err, "querying "+q.Collection)
}

// Count implements driver.Engine.
func (s *Store) Count(ctx context.Context, q *driver.Query) (int64, error) {
	bare := *q
	bare.Order, bare.After, bare.Before, bare.Limit, bare.Backward = nil, nil, nil, 0, false
	r, err := s.newRun(ctx, &bare)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	err = s.read(ctx, func(c *conn) error {
		if err := r.begin(c); err != nil {
			return err
		}
		n, err = r.count()
		return err
	})
	return n, wrap(err, "counting "+q.Collection)
}

// read calls f with a connection that sees one snapshot.
func (s *Store) read(ctx context.Context, f func(c *conn) error) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	if err := s.indexed(ctx); err != nil {
		return err
	}
	c, err := s.readers.get(ctx)
	if err != nil {
		return err
	}
	defer s.readers.put(c)
	err = f(c)
	if isBulk(err) {
		return driver.Errorf(driver.CodeUnavailable, "a large load into the empty store has just begun; ask again")
	}
	return err
}

// run is one execution of a query.
type run struct {
	ctx  context.Context
	q    *driver.Query
	coll *collection
	m    *matcher
	// scope and meta hold the row that is looked at.
	scope scope
	meta  meta

	orders        []order
	after, before *candidate
	access        []access // what the filter says about indexes

	c       *conn
	at      driver.Instant
	live    bool  // nothing was committed after the instant: the current state answers
	size    int64 // live documents now, for estimates
	rows    int64 // rows looked at
	entries int64 // steps along indexes
}

type order struct {
	operand
	desc bool
	path []string
}

// candidate is a document that may be part of the answer, with its place in
// the order.
type candidate struct {
	values  [][]byte // encoded, one for each order
	key     string
	doc     docID
	version int64           // the row of its version; 0: the document's current one
	kept    *driver.Version // its version, if that is at hand
}

func (s *Store) newRun(ctx context.Context, q *driver.Query) (*run, error) {
	coll, err := s.collection(q.Collection)
	if err != nil {
		return nil, err
	}
	if q.Limit < 0 {
		return nil, invalidf("a limit of %d documents", q.Limit)
	}
	r := &run{ctx: ctx, q: q, coll: coll, m: newMatcher(), at: q.At}
	if q.Filter != nil {
		if r.m.cond, err = r.m.compile(q.Filter); err != nil {
			return nil, err
		}
		r.access = coll.accessOf(q.Filter)
	}
	for _, o := range q.Order {
		operand, err := r.m.typed(o.Field)
		if err != nil {
			return nil, err
		}
		r.orders = append(r.orders, order{operand: operand, desc: o.Desc, path: o.Field.Path})
		if o.Field.Meta == driver.MetaKey {
			break // keys are unique: what follows never decides
		}
	}
	if r.after, err = r.position(q.After); err != nil {
		return nil, err
	}
	if r.before, err = r.position(q.Before); err != nil {
		return nil, err
	}
	r.scope = scope{slots: make([][]byte, r.m.slots), meta: &r.meta}
	return r, nil
}

// position encodes a place in the order.
func (r *run) position(p *driver.Position) (*candidate, error) {
	if p == nil {
		return nil, nil
	}
	if len(p.Values) != len(r.q.Order) {
		return nil, invalidf("a position of %d values in an order of %d fields", len(p.Values), len(r.q.Order))
	}
	c := &candidate{key: p.Key}
	for i, o := range r.orders {
		value, ok := encodeValue(p.Values[i], o.kind)
		if !ok {
			return nil, invalidf("%v (%T) in a position is not a value of kind %d", p.Values[i], p.Values[i], o.kind)
		}
		c.values = append(c.values, value)
	}
	return c, nil
}

// begin binds the run to a snapshot.
func (r *run) begin(c *conn) error {
	r.c = c
	s, err := c.Prepare(`SELECT last, live FROM collections WHERE id = ?1`)
	if err != nil {
		return err
	}
	s.BindInt64(1, r.coll.id)
	row, err := s.Step()
	if row {
		r.live = driver.Instant(s.ColumnInt64(0)) <= r.at
		r.size = s.ColumnInt64(1)
	}
	return finish(s, err)
}

// compare is the query's order.
func (r *run) compare(a, b *candidate) int {
	for i, o := range r.orders {
		c := bytes.Compare(a.values[i], b.values[i])
		if c != 0 {
			if o.desc {
				return -c
			}
			return c
		}
	}
	return cmp.Compare(a.key, b.key)
}

// within tells whether a candidate lies between the bounds of the page.
func (r *run) within(c *candidate) bool {
	return (r.after == nil || r.compare(c, r.after) > 0) && (r.before == nil || r.compare(c, r.before) < 0)
}

// clone gives a candidate memory of its own.
func (c *candidate) clone() *candidate {
	d := *c
	d.values = make([][]byte, len(c.values))
	for i, v := range c.values {
		d.values[i] = bytes.Clone(v)
	}
	d.key = string([]byte(c.key))
	return &d
}

// poll returns an error now and then when the query's context has ended.
func (r *run) poll() error {
	if r.rows&63 == 0 {
		return r.ctx.Err()
	}
	return nil
}
