package sqlitestore

import (
	"unsafe"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// row is a version that a query looks at: one that is kept, or the row that a
// statement stands on.
type row struct {
	kept *driver.Version // nil: s
	s    *sqlite.Stmt
}

// load makes a row the scope.
func (r *run) load(at row) {
	r.rows++
	if at.kept != nil {
		r.loadKept(at.kept)
		return
	}
	s := at.s
	if r.m.slots > 0 {
		clear(r.scope.slots)
		r.m.paths.find(r.c.raw(s, colData), r.scope.slots)
	}
	if r.m.meta == 0 {
		return
	}
	if r.m.needs(driver.MetaKey) {
		r.meta.key = r.c.raw(s, colKey)
	}
	if r.m.needs(driver.MetaNumber) {
		r.meta.number = s.ColumnInt64(colNumber)
	}
	if r.m.needs(driver.MetaRecordedAt) {
		r.meta.at = s.ColumnInt64(colAt)
	}
	if r.m.needs(driver.MetaOp) {
		r.meta.op = s.ColumnInt64(colOp)
	}
	if r.m.needs(driver.MetaAuthor) {
		r.meta.author = r.c.raw(s, colAuthor)
	}
	if r.m.needs(driver.MetaMessage) {
		r.meta.message = r.c.raw(s, colMessage)
	}
	if r.m.needs(driver.MetaGroup) {
		r.meta.group = r.c.raw(s, colGroup)
	}
}

func (r *run) loadKept(v *driver.Version) {
	if r.m.slots > 0 {
		clear(r.scope.slots)
		r.m.paths.find(v.Data, r.scope.slots)
	}
	if r.m.meta != 0 {
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

// place fills in a candidate's place in the order from the scope, reusing its
// memory.
func (r *run) place(c *candidate, at row) {
	for len(c.values) < len(r.orders) {
		c.values = append(c.values, nil)
	}
	for i, o := range r.orders {
		c.values[i] = o.append(c.values[i][:0], &r.scope)
	}
	if c.kept = at.kept; at.kept != nil {
		c.key = at.kept.Key
	} else {
		c.key = unsafeString(r.c.raw(at.s, colKey))
	}
}

// materialize copies the row of a version, and moves off it.
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

// keep keeps a version of the page for the reads to come.
func (r *run) keep(v *driver.Version, doc docID) {
	if r.c.whole {
		r.c.known.add(documentKey{r.coll.id, v.Key}, doc, v, r.c.count)
	}
}

// unsafeBytes views a string as bytes, which must not be changed.
func unsafeBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
