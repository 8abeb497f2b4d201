package plan

import "github.com/asof/asof/storage"

// queue holds what a field has read: a visit for each time that it is written,
// and the objects of all visits, one visit after another.
type queue struct {
	visits  []visit
	objects []*storage.Object
	written int // visits
	taken   int // objects
}

// visit is what one object's field has read.
type visit struct {
	n         int  // objects
	null      bool // instead
	err       error
	recovered error // from a panic
	page      *storage.Page
}

func (v *visit) failed() bool { return v.err != nil || v.recovered != nil }

func (q *queue) add(v visit) { q.visits = append(q.visits, v) }

// take returns the next visit, with its objects.
func (q *queue) take() (*visit, []*storage.Object) {
	v := &q.visits[q.written]
	q.written++
	objects := q.objects[q.taken : q.taken+v.n]
	q.taken += v.n
	return v, objects
}

func (q *queue) large(n int) bool { return cap(q.visits) > n || cap(q.objects) > n }

func (q *queue) reset() {
	clear(q.visits)
	clear(q.objects)
	*q = queue{visits: q.visits[:0], objects: q.objects[:0]}
}

// there reports a visit's error; false where its field is null.
func (r *run) there(at *place, v *visit) bool {
	switch {
	case v.recovered != nil:
		r.fail(at, v.recovered)
		return false
	case v.err != nil:
		r.fail(at, v.err)
		return false
	default:
		return !v.null
	}
}

// loadNested looks into objects nested in others for what has to be read.
func (r *run) loadNested(id int, inner *selection[*storage.Object], stored *storage.Field, i int, objects []*storage.Object) {
	q := &r.queues[id]
	before := len(q.objects)
	for _, o := range objects {
		var v visit
		if stored.List {
			var list []*storage.Object
			list, v.err = o.Objects(i)
			v.n, v.null = len(list), list == nil
			q.objects = append(q.objects, list...)
		} else {
			var child *storage.Object
			if child, v.err = o.Object(i); child != nil {
				v.n = 1
				q.objects = append(q.objects, child)
			}
			v.null = child == nil
		}
		q.add(v)
	}
	r.loadFound(inner, q.objects[before:])
}

// loadFound reads what belongs to objects, some of which may be nil.
func (r *run) loadFound(inner *selection[*storage.Object], objects []*storage.Object) {
	if len(inner.loads) == 0 {
		return
	}
	found := make([]*storage.Object, 0, len(objects))
	for _, o := range objects {
		if o != nil {
			found = append(found, o)
		}
	}
	inner.load(r, found)
}

// loadVersions reads a page of the versions of each document, in one call of the
// store.
func (r *run) loadVersions(id, args int, members []string, inner *selection[*storage.Page], objects []*storage.Object) {
	if len(objects) == 0 {
		return
	}
	q := &r.queues[id]
	docs := make([]*storage.Document, len(objects))
	for i, o := range objects {
		docs[i] = o.Of()
	}
	given, _ := r.args[args].(*storage.VersionsArgs)
	projected := *given
	projected.Members = members
	found, recovered := r.versionsOf(docs, &projected)
	var pages []*storage.Page
	for i := range docs {
		var v visit
		switch {
		case recovered != nil && i == 0:
			v.recovered = recovered
		case recovered != nil:
			v.err = internalError()
		case found[i].Err != nil:
			v.err = found[i].Err
		default:
			v.page = &found[i].Page.Page
			pages = append(pages, v.page)
		}
		q.add(v)
	}
	if len(inner.loads) > 0 {
		inner.load(r, pages)
	}
}

func (r *run) versionsOf(docs []*storage.Document, args *storage.VersionsArgs) (found []storage.VersionsOf, recovered error) {
	defer func() {
		if failure := recover(); failure != nil {
			recovered = r.whileReading(failure)
		}
	}()
	return r.plan.store.VersionsTogether(r.ctx, docs, args), nil
}

// internalError is the error of what could not be read because reading for another
// field panicked.
func internalError() error {
	return &storage.Error{Code: storage.CodeInternal, Message: "internal error"}
}
