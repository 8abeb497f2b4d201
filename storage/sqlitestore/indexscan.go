package sqlitestore

import (
	"math"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// visit is called with the row of a version that the filter accepts. It
// returns false to stop.
type visit func(at row, doc docID) (bool, error)

func (r *run) counting(n *int64) visit {
	return func(row, docID) (bool, error) {
		*n++
		return true, nil
	}
}

// document goes to the document of an index entry, at the query's instant,
// and calls f if the filter accepts it.
func (r *run) document(doc docID, key string, f visit) (bool, error) {
	if err := r.poll(); err != nil {
		return false, err
	}
	if kept, _ := r.c.known.find(documentKey{r.coll.id, key}, driver.Ref{At: r.at}, r.c.count); kept != nil && !kept.Deleted {
		if !r.matches(row{kept: kept}) {
			return true, nil
		}
		return f(row{kept: kept}, doc)
	}
	s, err := r.rowOf(doc)
	if err != nil {
		return false, err
	}
	if s == nil {
		return false, internalf("%s: an index has an entry for document %d, which is not there; run a check", r.coll.name, doc)
	}
	goOn := true
	if r.matches(row{s: s}) {
		goOn, err = f(row{s: s}, doc)
	}
	return goOn, finish(s, err)
}

// rowOf goes to the row of a document that an index has an entry for. A past
// version is in the history even where it is the current one still, so one
// look is enough.
func (r *run) rowOf(doc docID) (*sqlite.Stmt, error) {
	if !r.live {
		return r.inHistory(doc)
	}
	s, err := r.c.Prepare(sqlDocumentByID)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, int64(doc))
	row, err := s.Step()
	if err != nil || !row || s.ColumnInt64(colDeleted) != 0 {
		return nil, finish(s, err)
	}
	return s, nil
}

// selectEach calls f for the documents of the entries in ranges, once for each.
func (r *run) selectEach(a access, f visit) error {
	at, err := r.locate(a.ix)
	if err != nil {
		return err
	}
	var seen map[docID]bool
	if !a.distinct() {
		seen = map[docID]bool{}
	}
	for _, sp := range a.ranges {
		cur, err := r.walk(at, bound{value: sp.low}, bound{value: sp.high}, false)
		if err != nil {
			return err
		}
		for {
			var more bool
			if more, err = cur.next(); err != nil || !more {
				break
			}
			doc := cur.entry.doc
			if seen[doc] {
				continue
			}
			if seen != nil {
				seen[doc] = true
			}
			if more, err = r.document(doc, unsafeString(cur.entry.key), f); err != nil || !more {
				break
			}
		}
		if err = cur.close(err); err != nil {
			return err
		}
	}
	return nil
}

// selectPage reads the documents that a condition allows and sorts them.
func (r *run) selectPage(a access) ([]*driver.Version, error) {
	t := &top{r: r, limit: r.q.Limit}
	if err := r.selectEach(a, r.collect(t)); err != nil {
		return nil, err
	}
	return t.versions()
}

// patience is how many documents a way that may stop early looks at.
func (r *run) patience() int64 {
	if r.q.Limit == 0 {
		return math.MaxInt64 / 2
	}
	return max(int64(r.q.Limit), r.size/8) + 64
}

// filler appends accepted rows to a page until it is full.
type filler struct {
	r   *run
	out []*driver.Version
	c   candidate
}

func (p *filler) full() bool { return p.r.q.Limit > 0 && len(p.out) >= p.r.q.Limit }

func (p *filler) visit(at row, doc docID) (bool, error) {
	if p.r.after != nil || p.r.before != nil {
		p.r.place(&p.c, at)
		if !p.r.within(&p.c) {
			return true, nil
		}
	}
	v, err := p.r.materialize(at, doc)
	p.out = append(p.out, v)
	return !p.full(), err
}

// page returns what was found, in the query's order.
func (p *filler) page() []*driver.Version {
	if p.r.q.Backward {
		slices.Reverse(p.out)
	}
	return p.out
}

// keyPage reads documents in the order of their keys. It reports false when
// it gave up.
func (r *run) keyPage() ([]*driver.Version, bool, error) {
	reverse := r.q.Backward != (len(r.orders) > 0 && r.orders[0].desc)
	first, last := r.after, r.before
	if r.q.Backward {
		first, last = last, first
	}
	query := sqlKeyScan
	switch {
	case reverse && first != nil:
		query = sqlKeyScanBackward
	case reverse:
		query = sqlKeyScanEnd
	}
	s, err := r.c.Prepare(query)
	if err != nil {
		return nil, false, err
	}
	s.BindInt64(1, r.coll.id)
	switch {
	case first != nil:
		s.BindText(2, first.key)
	case !reverse:
		s.BindText(2, "")
	}
	p := &filler{r: r}
	gaveUp := false
	patience := r.patience()
	err = r.eachUntil(s, p.visit, func() bool {
		// A key beyond the other bound ends the page.
		if last != nil {
			if c := compareText(r.c.raw(s, colKey), last.key); reverse && c < 0 || !reverse && c > 0 {
				return true
			}
		}
		gaveUp = r.rows > patience
		return gaveUp
	})
	return p.page(), !gaveUp, err
}
