package plan

import (
	"slices"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// loader follows references: it holds what a level of a plan wants.
type loader struct {
	dataloader.Levels
	broken *storage.Document // stands for those whose reading panicked
	keys   [][]byte          // of one visit
	level  level             // what is wanted and was not read yet
	free   level             // the memory of the last one
}

// level is what the fields of a plan that are equally deep want: they are read
// together.
type level struct {
	fields []wanting
	places []dataloader.Place // of the fields, one after another
}

// wanting is a field that waits for documents.
type wanting struct {
	t      *storage.Type
	queue  int
	inner  *selection[*storage.Object]
	visits [2]int // of the queue
	places int    // how many
}

func (l *level) reset() {
	clear(l.fields)
	clear(l.places)
	l.fields, l.places = l.fields[:0], l.places[:0]
}

// large reports whether levels took the memory of more than n references.
func (l *loader) large(n int) bool { return cap(l.level.places) > n || cap(l.free.places) > n }

func (l *loader) reset() {
	l.Reset()
	clear(l.keys)
	l.level.reset()
	l.free.reset()
	l.keys, l.broken = l.keys[:0], nil
}

// loadRefs finds out which documents a field of the objects refers to. They are
// read with those of all other fields of the level.
func (r *run) loadRefs(id, asOf int, t *storage.Type, inner *selection[*storage.Object], i int, objects []*storage.Object) {
	q, l := &r.queues[id], &r.loader
	first, before := len(q.visits), len(l.level.places)
	arg, _ := r.args[asOf].(instantArg)
	instant := instantOf{arg: arg.at}
	for _, o := range objects {
		var v visit
		l.keys, v.null, v.err = o.AppendRefs(l.keys[:0], i)
		if v.err == nil && len(l.keys) > 0 {
			var at driver.Instant
			var pinned bool
			if at, pinned, v.err = instant.of(r, o.Of()); v.err == nil {
				l.level.places, v.err = l.Want(l.level.places, t, at, pinned, l.keys)
			}
			if v.err == nil {
				v.n = len(l.keys)
			}
		}
		q.add(v)
	}
	l.level.fields = append(l.level.fields, wanting{t, id, inner, [2]int{first, len(q.visits)}, len(l.level.places) - before})
}

// readLevels reads what is wanted, and what is wanted then, until that is nothing:
// with one call of the store for each type and level.
func (r *run) readLevels() {
	l := &r.loader
	for len(l.level.fields) > 0 {
		now := l.level
		l.level, l.free = l.free, level{}
		for i := range now.fields {
			r.fetch(now.fields[i].t, &now)
		}
		place := 0
		for i := range now.fields {
			w := &now.fields[i]
			q := &r.queues[w.queue]
			before, places := len(q.objects), now.places[place:place+w.places]
			for n := w.visits[0]; n < w.visits[1]; n++ {
				places = places[l.give(q, &q.visits[n], places):]
			}
			place += w.places
			r.loadFound(w.inner, q.objects[before:])
		}
		now.reset()
		l.free = now
	}
}

// give hands a visit the documents in its places, and returns how many of these
// it had.
func (l *loader) give(q *queue, v *visit, places []dataloader.Place) int {
	n := v.n
	broken := func(p dataloader.Place) bool { return p.Document() == l.broken }
	if !v.failed() && l.broken != nil && slices.ContainsFunc(places[:n], broken) {
		v.err = internalError()
	}
	if v.failed() {
		v.n = 0
		return n
	}
	for _, p := range places[:n] {
		if d := p.Document(); d != nil {
			q.objects = append(q.objects, &d.Object)
		} else {
			q.objects = append(q.objects, nil)
		}
	}
	return n
}

// instantOf says at which instant references are read: that of the argument,
// which is checked once, or of the document that holds them.
type instantOf struct {
	arg     *driver.Instant
	checked bool
	err     error
}

func (a *instantOf) of(r *run, d *storage.Document) (at driver.Instant, pinned bool, err error) {
	if a.arg == nil {
		return d.At(), d.Pinned(), nil
	}
	if !a.checked {
		a.checked, a.err = true, r.plan.store.Settled(r.ctx, *a.arg)
	}
	return *a.arg, true, a.err
}

// fetch reads the documents of a type that a level wants. Where that fails, the
// visits that wanted some have the error.
func (r *run) fetch(t *storage.Type, now *level) {
	refs := r.loader.Missing(t)
	if len(refs) == 0 {
		return
	}
	docs, err, recovered := r.getKeys(t, refs)
	if err != nil || recovered != nil {
		r.failLevel(t, now, err, recovered)
	}
	r.loader.Fill(t, docs)
}

// failLevel gives those who wanted documents of a type the error of reading them.
func (r *run) failLevel(t *storage.Type, now *level, err, recovered error) {
	place := 0
	for i := range now.fields {
		w := &now.fields[i]
		if w.t != t {
			place += w.places
			continue
		}
		visits := r.queues[w.queue].visits[w.visits[0]:w.visits[1]]
		for i := range visits {
			v := &visits[i]
			if slices.ContainsFunc(now.places[place:place+v.n], dataloader.Place.Wanted) {
				v.err, v.recovered, recovered = err, recovered, nil
			}
			place += v.n
		}
	}
}

// getKeys reads documents. Where that panics, the first who wanted one has the
// panic as its error, and all others the error of broken documents.
func (r *run) getKeys(t *storage.Type, refs []storage.KeyAt) (docs []*storage.Document, err, recovered error) {
	defer func() {
		if failure := recover(); failure != nil {
			if r.loader.broken == nil { // one mark, however often it happens
				r.loader.broken = new(storage.Document)
			}
			docs, recovered = slices.Repeat([]*storage.Document{r.loader.broken}, len(refs)), r.whileReading(failure)
		}
	}()
	docs, err = r.plan.store.GetKeys(r.ctx, t, refs, r.plan.refs[t].list)
	return docs, err, nil
}
