package plan

import (
	"slices"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// loader holds the documents that an operation has reached by references: each
// is read once at an instant, as by package dataloader, whose limits apply.
type loader struct {
	cohorts  map[cohortKey]*cohort
	order    []*cohort // as they were first met
	last     *cohort
	loaded   int
	followed int
	broken   *storage.Document // stands for those whose reading panicked
	keys     [][]byte          // of one visit
	level    level             // what is wanted and was not read yet
	free     level             // the memory of the last one
}

// level is what the fields of a plan that are equally deep want: they are read
// together.
type level struct {
	fields []wanting
	slots  []slot // of the fields, one after another
}

// wanting is a field that waits for documents.
type wanting struct {
	t      *storage.Type
	queue  int
	inner  *selection[*storage.Object]
	visits [2]int // of the queue
	slots  int    // how many
}

func (l *level) reset() {
	clear(l.fields)
	clear(l.slots)
	l.fields, l.slots = l.fields[:0], l.slots[:0]
}

// cohort is the documents of one type that are read at one instant.
type cohort struct {
	cohortKey
	places map[string]int
	keys   []string
	docs   []*storage.Document // of the first keys; the others are still to be read
}

type cohortKey struct {
	t      *storage.Type
	at     driver.Instant
	pinned bool
}

// slot is where a document will be.
type slot struct {
	in    *cohort
	place int
}

// wanted reports whether the document is still to be read.
func (s slot) wanted() bool { return s.place >= len(s.in.docs) }

// large reports whether levels took the memory of more than n references.
func (l *loader) large(n int) bool { return cap(l.level.slots) > n || cap(l.free.slots) > n }

func (l *loader) reset() {
	clear(l.order)
	clear(l.keys)
	l.level.reset()
	l.free.reset()
	*l = loader{order: l.order[:0], keys: l.keys[:0], level: l.level, free: l.free}
}

func (l *loader) cohort(k cohortKey) *cohort {
	if l.last != nil && l.last.cohortKey == k {
		return l.last
	}
	c := l.cohorts[k]
	if c == nil {
		c = &cohort{cohortKey: k, places: map[string]int{}}
		if l.cohorts == nil {
			l.cohorts = map[cohortKey]*cohort{}
		}
		l.cohorts[k], l.order = c, append(l.order, c)
	}
	l.last = c
	return c
}

// loadRefs finds out which documents a field of the objects refers to. They are
// read with those of all other fields of the level.
func (r *run) loadRefs(id, asOf int, t *storage.Type, inner *selection[*storage.Object], i int, objects []*storage.Object) {
	q, l := &r.queues[id], &r.loader
	first, before := len(q.visits), len(l.level.slots)
	arg, _ := r.args[asOf].(instantArg)
	at := instantOf{arg: arg.at}
	for _, o := range objects {
		var v visit
		l.keys, v.null, v.err = o.AppendRefs(l.keys[:0], i)
		if v.err == nil && len(l.keys) > 0 {
			var k cohortKey
			if k, v.err = at.of(r, t, o.Of()); v.err == nil {
				v.err = l.want(l.cohort(k))
			}
			if v.err == nil {
				v.n = len(l.keys)
			}
		}
		q.add(v)
	}
	l.level.fields = append(l.level.fields, wanting{t, id, inner, [2]int{first, len(q.visits)}, len(l.level.slots) - before})
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
			before, slots := len(q.objects), now.slots[place:place+w.slots]
			for n := w.visits[0]; n < w.visits[1]; n++ {
				slots = slots[l.give(q, &q.visits[n], slots):]
			}
			place += w.slots
			r.loadFound(w.inner, q.objects[before:])
		}
		now.reset()
		l.free = now
	}
}

// give hands a visit the documents in its slots, and returns how many of these
// it had.
func (l *loader) give(q *queue, v *visit, slots []slot) int {
	n := v.n
	if !v.failed() && l.broken != nil && slices.ContainsFunc(slots[:n], func(s slot) bool { return s.in.docs[s.place] == l.broken }) {
		v.err = internalError()
	}
	if v.failed() {
		v.n = 0
		return n
	}
	for _, s := range slots[:n] {
		if d := s.in.docs[s.place]; d != nil {
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

func (a *instantOf) of(r *run, t *storage.Type, d *storage.Document) (cohortKey, error) {
	if a.arg == nil {
		return cohortKey{t, d.At(), d.Pinned()}, nil
	}
	if !a.checked {
		a.checked, a.err = true, r.plan.store.Settled(r.ctx, *a.arg)
	}
	return cohortKey{t, *a.arg, true}, a.err
}

// want finds a slot for each key of a visit.
func (l *loader) want(c *cohort) error {
	keys, slots := len(c.keys), len(l.level.slots)
	for _, key := range l.keys {
		place, known := c.places[string(key)]
		if !known {
			if l.loaded >= dataloader.MaxDocs {
				l.forget(c, keys)
				l.level.slots = l.level.slots[:slots]
				l.followed += len(l.keys)
				return dataloader.TooMany()
			}
			l.loaded++
			place = len(c.keys)
			c.keys = append(c.keys, string(key))
			c.places[c.keys[place]] = place
		}
		l.level.slots = append(l.level.slots, slot{c, place})
	}
	if l.followed += len(l.keys); l.followed > dataloader.MaxFollowed {
		l.forget(c, keys)
		l.level.slots = l.level.slots[:slots]
		return dataloader.TooMany()
	}
	return nil
}

// forget drops the keys from a place on: they may be wanted again.
func (l *loader) forget(c *cohort, from int) {
	for _, key := range c.keys[from:] {
		delete(c.places, key)
	}
	l.loaded -= len(c.keys) - from
	c.keys = c.keys[:from]
}

// fetch reads the documents of a type that a level wants. Where that fails, the
// visits that wanted some have the error.
func (r *run) fetch(t *storage.Type, now *level) {
	l := &r.loader
	var refs []storage.KeyAt
	for _, c := range l.order {
		if c.t != t || len(c.keys) == len(c.docs) {
			continue
		}
		for _, key := range c.keys[len(c.docs):] {
			refs = append(refs, storage.KeyAt{Key: key, At: c.at, Pinned: c.pinned})
		}
	}
	if len(refs) == 0 {
		return
	}
	docs, err, recovered := r.getKeys(t, refs)
	if err != nil || recovered != nil {
		r.failLevel(t, now, err, recovered)
	}
	for _, c := range l.order {
		n := len(c.keys) - len(c.docs)
		switch {
		case c.t != t || n == 0:
		case docs == nil:
			l.forget(c, len(c.docs))
		default:
			c.docs, docs = append(c.docs, docs[:n]...), docs[n:]
		}
	}
}

// failLevel gives those who wanted documents of a type the error of reading them.
func (r *run) failLevel(t *storage.Type, now *level, err, recovered error) {
	place := 0
	for i := range now.fields {
		w := &now.fields[i]
		if w.t != t {
			place += w.slots
			continue
		}
		visits := r.queues[w.queue].visits[w.visits[0]:w.visits[1]]
		for i := range visits {
			v := &visits[i]
			if slices.ContainsFunc(now.slots[place:place+v.n], slot.wanted) {
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
