package sqlitestore

import (
	"container/heap"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// top keeps the candidates of a page: the first of the order, or the last of
// it for a page that is read backward. Where there is no limit it keeps all.
type top struct {
	r     *run
	limit int
	list  []*candidate // a heap with the worst on top once it is full
}

// worse reports whether a is further from the page than b.
func (t *top) worse(a, b *candidate) bool {
	c := t.r.compare(a, b)
	if t.r.q.Backward {
		return c < 0
	}
	return c > 0
}

func (t *top) Len() int           { return len(t.list) }
func (t *top) Less(i, j int) bool { return t.worse(t.list[i], t.list[j]) }
func (t *top) Swap(i, j int)      { t.list[i], t.list[j] = t.list[j], t.list[i] }
func (t *top) Push(x any)         { t.list = append(t.list, x.(*candidate)) }
func (t *top) Pop() any {
	last := t.list[len(t.list)-1]
	t.list = t.list[:len(t.list)-1]
	return last
}

// add takes a copy of a candidate if it is good enough.
func (t *top) add(c *candidate) {
	switch {
	case !t.r.within(c):
	case t.limit == 0 || len(t.list) < t.limit:
		t.list = append(t.list, c.clone())
		if len(t.list) == t.limit {
			heap.Init(t)
		}
	case t.worse(t.list[0], c):
		t.list[0] = c.clone()
		heap.Fix(t, 0)
	}
}

// versions reads the versions that were kept, in the query's order.
func (t *top) versions() ([]*driver.Version, error) {
	slices.SortFunc(t.list, t.r.compare)
	out := make([]*driver.Version, 0, len(t.list))
	for _, c := range t.list {
		v, err := t.r.version(c)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// version reads the version of a candidate.
func (r *run) version(c *candidate) (*driver.Version, error) {
	if c.kept != nil {
		return c.kept, nil
	}
	var v *driver.Version
	var err error
	if c.version != 0 {
		v, err = r.c.versionByID(r.coll, c.version, r.q.Fields)
	} else {
		v, err = r.c.documentByID(r.coll, c.doc, r.q.Fields)
		if err == nil && v != nil && v.RecordedAt > r.at { // in a newer snapshot
			v, err = r.c.versionAt(r.coll, c.doc, r.at, r.q.Fields)
		}
	}
	if err == nil && v == nil {
		err = internalf("%s: document %d has vanished", r.coll.name, c.doc)
	}
	if err == nil {
		r.keep(v, c.doc)
	}
	return v, err
}

// documentByID reads a document's current version; nil where there is none.
func (c *conn) documentByID(coll *collection, doc docID, fields []string) (*driver.Version, error) {
	s, err := c.Prepare(sqlDocumentByID)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, int64(doc))
	row, err := s.Step()
	if err != nil || !row {
		return nil, finish(s, err)
	}
	v, err := c.version(s, coll.name, true, fields)
	return v, finish(s, err)
}
