package sqlitestore

import (
	"container/heap"
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

// filler appends accepted rows to a page until it is full.
type filler struct {
	r    *run
	out  []*driver.Version
	size int64 // bytes of their data
	c    candidate
}

func (p *filler) full() bool {
	return p.r.q.Limit > 0 && len(p.out) >= p.r.q.Limit || p.r.q.Exceeds(p.size)
}

func (p *filler) add(v *driver.Version) {
	p.out = append(p.out, v)
	p.size += int64(v.Size())
}

func (p *filler) visit(at row, doc docID) (bool, error) {
	if p.r.after != nil || p.r.before != nil {
		p.r.place(&p.c, at)
		if !p.r.within(&p.c) {
			return true, nil
		}
	}
	v, err := p.r.materialize(at, doc)
	if err != nil {
		return false, err
	}
	p.add(v)
	return !p.full(), nil
}

// page returns what was found, in the query's order.
func (p *filler) page() []*driver.Version {
	if p.r.q.Backward {
		slices.Reverse(p.out)
	}
	return p.out
}

const sqlScan = `SELECT ` + documentColumns + ` FROM documents d WHERE d.id > ?1 AND d.id < ?2 ORDER BY d.id`

// atInstant returns a statement on the row that was current at the query's instant:
// s itself, which is on the document's row, or one on the history; nil if the
// document did not exist then. If it is not s, the caller resets it.
func (r *run) atInstant(s *sqlite.Stmt) (*sqlite.Stmt, error) {
	if r.live || driver.Instant(s.ColumnInt64(colAt)) <= r.at {
		if s.ColumnInt64(colDeleted) != 0 {
			return nil, nil
		}
		return s, nil
	}
	return r.inHistory(docID(s.ColumnInt64(colID)))
}

// inHistory returns a statement on the row of the history that was current at the
// query's instant; nil if the document did not exist then.
func (r *run) inHistory(doc docID) (*sqlite.Stmt, error) {
	h, err := r.c.prepare(sqlVersionAt, doc, r.at)
	if err != nil {
		return nil, err
	}
	row, err := h.Step()
	if err != nil || !row || h.ColumnInt64(colDeleted) != 0 {
		return nil, finish(h, err)
	}
	return h, nil
}

// scan reads all documents of the collection, in the order of the file, and calls
// f with the row of each one that existed at the instant and that the filter accepts.
// It continues in a newer snapshot when the end of its own is requested.
func (r *run) scan(f visit) error {
	last := docOf(r.coll.id, 0)
	for {
		ended, err := r.scanFrom(&last, f)
		if ended || err != nil {
			return err
		}
		if err := r.renew(); err != nil {
			return err
		}
	}
}

// scanFrom scans after the document last until the end of the snapshot is requested,
// and sets last to the last document that it examined.
func (r *run) scanFrom(last *docID, f visit) (ended bool, err error) {
	s, err := r.c.prepare(sqlScan, *last, docOf(r.coll.id+1, 0))
	if err != nil {
		return false, err
	}
	for err == nil {
		var more bool
		if more, err = s.Step(); err != nil || !more {
			return true, finish(s, err)
		}
		*last = docID(s.ColumnInt64(colID))
		if err = r.look(s, *last, f); err == nil {
			err = r.poll()
		}
		if r.c.isAsked() {
			break
		}
	}
	return false, finish(s, err)
}

// look calls f for the document of a statement's current row.
func (r *run) look(s *sqlite.Stmt, doc docID, f visit) error {
	at, err := r.atInstant(s)
	if err != nil {
		return err
	}
	if at == nil {
		r.rows++
		return nil
	}
	if r.matches(row{s: at}) {
		_, err = f(row{s: at}, doc)
	}
	if at != s {
		err = finish(at, err)
	}
	return err
}

// collect adds the documents of a scan to a page.
func (r *run) collect(t *top) visit {
	var c candidate
	return func(at row, doc docID) (bool, error) {
		r.place(&c, at)
		c.doc = doc
		t.add(&c)
		return true, nil
	}
}

// scanPage answers the query by looking at all documents.
func (r *run) scanPage() ([]*driver.Version, error) {
	t := &top{r: r, limit: r.q.Limit}
	if err := r.scan(r.collect(t)); err != nil {
		return nil, err
	}
	return t.page()
}

// top keeps the candidates of a page: the first of the order, or the last for a
// page that is read backward. Without a limit it keeps all.
type top struct {
	r     *run
	limit int
	list  []*candidate // once it is full, a heap with the last of the page on top
}

// after reports whether a comes after b in the direction of the page.
func (t *top) after(a, b *candidate) bool {
	c := t.r.compare(a, b)
	if t.r.q.Backward {
		return c < 0
	}
	return c > 0
}

func (t *top) Len() int           { return len(t.list) }
func (t *top) Less(i, j int) bool { return t.after(t.list[i], t.list[j]) }
func (t *top) Swap(i, j int)      { t.list[i], t.list[j] = t.list[j], t.list[i] }
func (t *top) Push(x any)         { t.list = append(t.list, x.(*candidate)) }
func (t *top) Pop() any {
	last := t.list[len(t.list)-1]
	t.list = t.list[:len(t.list)-1]
	return last
}

// add keeps a copy of a candidate if it belongs to the page so far.
func (t *top) add(c *candidate) {
	switch {
	case !t.r.within(c):
	case t.limit == 0 || len(t.list) < t.limit:
		t.list = append(t.list, t.r.clone(c))
		if len(t.list) == t.limit {
			heap.Init(t)
		}
	case t.after(t.list[0], c):
		t.list[0] = t.r.clone(c)
		heap.Fix(t, 0)
	}
}

// read reads the versions of the candidates, in the query's order, until the page
// is full.
func (t *top) read(into *filler) error {
	slices.SortFunc(t.list, t.r.compare)
	if t.r.q.Backward {
		slices.Reverse(t.list)
	}
	for _, c := range t.list {
		if into.full() {
			break
		}
		v, err := t.r.version(c)
		if err != nil {
			return err
		}
		into.add(v)
	}
	return nil
}

// page returns the versions of the candidates.
func (t *top) page() ([]*driver.Version, error) {
	p := &filler{r: t.r}
	err := t.read(p)
	return p.page(), err
}

// version reads the version of a candidate.
func (r *run) version(c *candidate) (*driver.Version, error) {
	if c.kept != nil {
		return c.kept, nil
	}
	v, err := r.c.get(r.coll, driver.Ref{Key: c.key, At: r.at}, r.q.Fields)
	if err == nil && v == nil {
		err = internalf("%s: document %d has vanished", r.coll.name, c.doc)
	}
	return v, err
}
