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
// and calls f if it was there and the filter accepts it.
func (r *run) document(ix *index, doc docID, key string, f visit) (bool, error) {
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
		r.rows++
		if ix != r.coll.keys {
			return false, internalf("%s: an index has an entry for document %d, which is not there; run a check", r.coll.name, doc)
		}
		return true, nil
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
	var seen map[docID]bool
	if !a.distinct() {
		seen = map[docID]bool{}
	}
	for _, sp := range a.ranges {
		cur, err := r.walk(a.ix, bound{value: sp.low}, bound{value: sp.high}, false)
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
			if more, err = r.document(a.ix, doc, unsafeString(cur.entry.key), f); err != nil || !more {
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
	return max(int64(r.q.Limit), r.size/16) + 64
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
