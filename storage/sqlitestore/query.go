package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"unsafe"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// Query implements driver.Engine.
func (s *Store) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	r := s.newRun(ctx, q)
	out, err := execute(r, r.page)
	return out, wrap(err, "querying "+q.Collection)
}

// Count implements driver.Engine.
func (s *Store) Count(ctx context.Context, q *driver.Query) (int64, error) {
	bare := *q
	bare.Order, bare.After, bare.Before, bare.Limit, bare.Backward = nil, nil, nil, 0, false
	r := s.newRun(ctx, &bare)
	n, err := execute(r, r.count)
	return n, wrap(err, "counting "+q.Collection)
}

// execute answers a query in a snapshot.
func execute[T any](r *run, of func() (T, error)) (out T, err error) {
	err = r.store.read(r.ctx, func(c *conn) error {
		r.c = c
		err := r.begin()
		if err != nil {
			return err
		}
		if r.live {
			r.at = r.last // later commits have later instants
		}
		out, err = of()
		return cmp.Or(err, r.scope.looks.err)
	})
	return out, err
}

// sortBytes is how many bytes of a value a sort keeps in memory.
const sortBytes = 512

// run is one execution of a query.
type run struct {
	ctx   context.Context
	store *Store
	q     *driver.Query
	coll  *collection
	m     *matcher
	// scope and meta hold the values of the current row.
	scope scope
	meta  meta

	wholes [2]scope // values that are compared as a whole

	orders        []order
	after, before *candidate
	access        []access // ranges of indexes that the filter allows
	keysOf        *index   // its entries tell all that is asked: no document is read

	c    *conn
	at   driver.Instant
	last driver.Instant // the latest version of the collection
	live bool           // nothing was committed after the instant: the query reads the current state
	size int64          // live documents now, for estimates
	rows int64          // rows examined
}

type order struct {
	operand
	desc bool
	path []string
}

// candidate is a document that may be part of the page, with its position in the order.
type candidate struct {
	values [][]byte // encoded, one for each order
	cut    []bool   // the values that are only the beginning; nil: none
	number int64    // of its version
	key    string
	doc    docID
	kept   *driver.Version // its version, where no document has to be read for it
}

func (s *Store) newRun(ctx context.Context, q *driver.Query) *run {
	coll := s.byName[q.Collection]
	r := &run{ctx: ctx, store: s, q: q, coll: coll, m: newMatcher(), at: q.At}
	if q.Filter != nil {
		r.m.cond = r.m.compile(q.Filter)
		r.access = coll.accessOf(q.Filter)
	}
	for _, o := range q.Order {
		r.orders = append(r.orders, order{operand: r.m.operand(o.Field), desc: o.Desc, path: o.Field.Path})
		if o.Field.Meta == driver.MetaKey {
			break // keys are unique: further orders never decide
		}
	}
	if q.Keys && len(q.Order) == 0 && len(r.access) == 1 && r.access[0].exact {
		r.keysOf = r.access[0].ix
	}
	r.after, r.before = r.position(q.After), r.position(q.Before)
	r.scope = scope{slots: make([][]byte, r.m.slots), meta: &r.meta, looks: &looks{ctx: ctx}}
	return r
}

// position encodes a place in the order.
func (r *run) position(p *driver.Position) *candidate {
	if p == nil {
		return nil
	}
	c := &candidate{key: p.Key}
	for i, o := range r.orders {
		c.values = append(c.values, encodeValue(p.Values[i], o.kind))
	}
	return c
}

// begin reads the collection's counters in the snapshot.
func (r *run) begin() error {
	return r.c.first(`SELECT last, live FROM collections WHERE id = ?1`, func(s *sqlite.Stmt) error {
		r.last = driver.Instant(s.ColumnInt64(0))
		r.live = r.last <= r.at
		r.size = s.ColumnInt64(1)
		return nil
	}, r.coll.id)
}

// renew takes a new snapshot, in which a scan goes on when the end of its own is requested (see
// pool). It gives the same answer, since the query's instant is the same, later commits are after
// it, and each document is looked at once.
func (r *run) renew() error {
	r.c.endSnapshot()
	if err := r.c.takeSnapshot(); err != nil {
		return err
	}
	return r.begin()
}

// compare is the query's order.
func (r *run) compare(a, b *candidate) int {
	for i, o := range r.orders {
		c := r.compareValues(a, b, i)
		if c != 0 {
			if o.desc {
				return -c
			}
			return c
		}
	}
	return cmp.Compare(a.key, b.key)
}

// compareValues compares the values of two candidates in one of the orders. If the
// parts in memory are equal, it reads the rest.
func (r *run) compareValues(a, b *candidate, i int) int {
	x, y := a.values[i], b.values[i]
	if !a.isCut(i) && !b.isCut(i) {
		return bytes.Compare(x, y)
	}
	if c := bytes.Compare(x[:min(r.store.opts.sortBytes, len(x))], y[:min(r.store.opts.sortBytes, len(y))]); c != 0 {
		return c
	}
	return bytes.Compare(r.whole(a, i, &r.wholes[0]), r.whole(b, i, &r.wholes[1]))
}

func (c *candidate) isCut(i int) bool { return i < len(c.cut) && c.cut[i] }

// whole returns a value of a candidate, which it reads into the scope if only the
// beginning is in memory. It reports an error in the query's looks.
func (r *run) whole(c *candidate, i int, into *scope) []byte {
	if !c.isCut(i) || r.scope.looks.err != nil {
		return c.values[i]
	}
	if err := r.c.first(`SELECT data FROM versions WHERE id = ?1`, func(s *sqlite.Stmt) error {
		data := r.c.raw(s, 0)
		into.slots = slices.Grow(into.slots[:0], r.m.slots)[:r.m.slots]
		into.enter(data, r.m.paths)
		into.buf = r.orders[i].append(into.buf[:0], into)
		r.scope.looks.ended(len(data))
		return nil
	}, c.doc.version(c.number)); err != nil {
		r.scope.looks.err = err
	}
	return into.buf
}

// within reports whether a candidate lies between the bounds of the page.
func (r *run) within(c *candidate) bool {
	return (r.after == nil || r.compare(c, r.after) > 0) && (r.before == nil || r.compare(c, r.before) < 0)
}

// clone gives a candidate memory of its own, for the beginnings of its values: a sort
// holds many candidates, whose documents may be long.
func (r *run) clone(c *candidate) *candidate {
	d := *c
	d.values = make([][]byte, len(c.values))
	for i, v := range c.values {
		if len(v) > r.store.opts.sortBytes && r.orders[i].meta == driver.MetaNone {
			if d.cut == nil {
				d.cut = make([]bool, len(c.values))
			}
			d.cut[i], v = true, v[:r.store.opts.sortBytes]
		}
		d.values[i] = bytes.Clone(v)
	}
	d.key = string([]byte(c.key))
	return &d
}

// poll returns the error of the query's context, which it checks every few rows.
func (r *run) poll() error {
	if r.rows&63 == 0 {
		return r.ctx.Err()
	}
	return r.scope.looks.err
}

// row is a version that a query examines: a cached one, or a statement's current row.
type row struct {
	kept *driver.Version // nil: s
	s    *sqlite.Stmt
}

// load reads a row's values into the scope.
func (r *run) load(at row) {
	r.rows++
	if at.kept != nil {
		r.loadKept(at.kept)
		return
	}
	s := at.s
	if r.m.slots > 0 {
		r.scope.enter(r.c.raw(s, colData), r.m.paths)
	}
	if r.m.meta {
		r.meta = meta{
			key: r.c.raw(s, colKey), number: s.ColumnInt64(colNumber), at: s.ColumnInt64(colAt), op: s.ColumnInt64(colOp),
			author: r.c.raw(s, colAuthor), message: r.c.raw(s, colMessage), group: r.c.raw(s, colGroup),
		}
	}
}

func (r *run) loadKept(v *driver.Version) {
	if r.m.slots > 0 {
		r.scope.enter(v.Data, r.m.paths)
	}
	if r.m.meta {
		r.meta = meta{
			key: unsafeBytes(v.Key), number: v.Number, at: int64(v.RecordedAt), op: int64(v.Op),
			author: unsafeBytes(v.Author), message: unsafeBytes(v.Message), group: unsafeBytes(v.Group),
		}
	}
}

// matches evaluates the filter on a row, and leaves the row in the scope for
// the order.
func (r *run) matches(at row) bool {
	r.load(at)
	return r.m.cond == nil || r.m.cond.match(&r.scope)
}

// place sets a candidate's position in the order from the scope, reusing its memory.
func (r *run) place(c *candidate, at row) {
	for len(c.values) < len(r.orders) {
		c.values = append(c.values, nil)
	}
	for i, o := range r.orders {
		c.values[i] = o.append(c.values[i][:0], &r.scope)
	}
	if c.kept = at.kept; at.kept != nil {
		c.key, c.number = at.kept.Key, at.kept.Number
	} else {
		c.number = at.s.ColumnInt64(colNumber)
		c.key = rawjson.View(r.c.raw(at.s, colKey))
	}
}

// materialize copies the row of a version and resets its statement.
func (r *run) materialize(at row, doc docID) (*driver.Version, error) {
	if at.kept != nil {
		return at.kept, nil
	}
	var v *driver.Version
	var err error
	if at.s.ColumnInt64(colID) != int64(doc) {
		v, err = r.c.historic(at.s, r.coll, r.q.Fields)
	} else {
		v, err = r.c.version(at.s, r.coll.name, true, r.q.Fields)
	}
	if err == nil {
		r.keep(v, doc)
	}
	return v, err
}

// keep adds a version of the page to the cache.
func (r *run) keep(v *driver.Version, doc docID) {
	if r.c.whole {
		r.c.store.cached.add(documentKey{r.coll.id, v.Key}, doc, v, r.c.count)
	}
}

// unsafeBytes views a string as bytes, which must not be changed.
func unsafeBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
