package plan

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// queue holds what a field has read: a visit for each time that it is written.
type queue struct {
	visits  []visit
	written int
}

// visit is what one object's field has read.
type visit struct {
	places []dataloader.Place // of what it refers to
	page   *storage.Page
	null   bool // instead
	err    error
}

// visitBytes is what a visit takes.
const visitBytes = 56

// take returns the next visit of a queue, or reports its error; nil where the
// field is null.
func (r *run) take(id int, at *place) *visit {
	q := &r.queues[id]
	v := &q.visits[q.written]
	q.written++
	switch {
	case v.err != nil:
		r.fail(at, v.err)
		return nil
	case v.null:
		return nil
	default:
		return v
	}
}

// load reads what is needed to write the objects, for all of them at once, or notes
// that it is wanted (readLevels).
func (s *selection[P]) load(r *run, objects []P) {
	for _, l := range s.loads {
		l(r, objects)
	}
}

// below makes s read what inner needs, stored names included, for the objects that
// add finds in each object of s.
func below[P, Q any](s *selection[P], inner *selection[Q], add func(all []Q, object P) []Q) {
	s.need.add(inner.need...)
	if len(inner.loads) == 0 {
		return
	}
	s.loads = append(s.loads, func(r *run, objects []P) {
		var all []Q
		for _, o := range objects {
			all = add(all, o)
		}
		inner.load(r, all)
	})
}

// one makes the writer of an object that each of the objects above it has, and
// has what it needs read with what they need.
func one[P, Q any](inner *selection[Q], s *selection[P], of func(object P) Q) writer[P] {
	below(s, inner, func(all []Q, object P) []Q { return append(all, of(object)) })
	return func(r *run, at *place, object P) bool { return inner.writeIn(r, at, of(object)) }
}

// call calls the store for several fields. A panic becomes an error of the first of
// them; the others get errElsewhere.
func (r *run) call(store func() error) (panicked bool, err error) {
	defer func() {
		if failure := recover(); failure != nil {
			panicked, err = true, r.oc.RecoverFunc(r.ctx, failure)
			if placed, ok := errors.AsType[*gqlerror.Error](err); ok && placed.Err != nil {
				err = placed.Err
			}
		}
	}()
	return false, store()
}

// errElsewhere is the error of what could not be read because reading for another
// field panicked.
func errElsewhere() error {
	return &fault.Error{Code: fault.CodeInternal, Message: "internal error"}
}

// reference makes the writer of a reference, or a list of references: null for
// a document that does not exist.
func reference(b *planning, f graphql.CollectedField, s *selection[*storage.Object], stored *record.Field, i int) writer[*storage.Object] {
	types := b.store.Types()
	t := types[slices.IndexFunc(types, func(t *record.Type) bool { return t.Name == stored.Ref })]
	inner := documentSelection(b, t, f.Selections)
	if b.plan.refs[t] == nil {
		b.plan.refs[t] = &names{}
	}
	b.plan.refs[t].add(inner.need...)
	id, given := b.queue(), b.arguments(f, ofReference)
	s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadRefs(wanting{t, id, inner}, given, i, objects) })
	return func(r *run, at *place, _ *storage.Object) bool {
		v := r.take(id, at)
		if v == nil {
			return false
		}
		if stored.List {
			for k, p := range v.places {
				if err := r.pruned(p); err != nil {
					r.failElement(at, k, err)
				}
			}
			return writeList(r, at, len(v.places), false, func(k int) bool {
				d := v.places[k].Document()
				return d != nil && inner.write(r, &d.Object)
			})
		}
		if err := r.pruned(v.places[0]); err != nil {
			r.fail(at, err)
		}
		d := v.places[0].Document()
		return d != nil && inner.writeIn(r, at, &d.Object)
	}
}

// pruned is the error of a place that leads to what was pruned. It takes a read of the store: once
// an answer has as many errors as it lists, there is none.
func (r *run) pruned(p dataloader.Place) error {
	if r.failed > r.of.MaxErrors {
		return nil
	}
	return p.Pruned(r.ctx)
}

// copiedField makes the writer of a field of the document that a reference leads to: null where
// that does not exist.
func copiedField(b *planning, f graphql.CollectedField, s *selection[*storage.Object], t *record.Type, c *record.Copy) writer[*storage.Object] {
	s.need.add(t.Object.Fields[c.Ref].Stored)
	if b.plan.refs[c.Of] == nil {
		b.plan.refs[c.Of] = &names{}
	}
	b.plan.refs[c.Of].add(c.Member())
	id, given := b.queue(), b.arguments(f, ofReference)
	w := wanting{c.Of, id, &selection[*storage.Object]{}}
	s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadRefs(w, given, c.Ref, objects) })
	return func(r *run, at *place, _ *storage.Object) bool {
		v := r.take(id, at)
		if v == nil {
			return false
		}
		if err := r.pruned(v.places[0]); err != nil {
			r.fail(at, err)
		}
		d := v.places[0].Document()
		if d == nil {
			return false
		}
		var raw []byte
		o, i, err := storage.SourceOf(c, d)
		if err == nil && o != nil {
			raw, err = o.RawField(i)
		}
		if err != nil {
			r.fail(at, err)
			return false
		}
		r.out = append(r.out, raw...)
		return raw != nil
	}
}

// loader follows references: it holds what a level of a plan wants.
type loader struct {
	dataloader.Levels
	keys   [][]byte           // of one visit
	places []dataloader.Place // of the last visits
	wanted []wanting          // by fields of the same level, and not read yet
}

// placesTogether is how many places of several visits are allocated at once at most.
const placesTogether = 4096

// wanting is a field whose documents are still to be read, for all of its objects at
// once.
type wanting struct {
	t     *record.Type
	queue int
	inner *selection[*storage.Object]
}

// broken takes the place of documents whose reading panicked, for fields that want
// them later.
var broken = new(storage.Document)

func isBroken(p dataloader.Place) bool { return p.Document() == broken }

func (l *loader) reset() {
	l.Reset()
	l.keys, l.places, l.wanted = reused(l.keys[:cap(l.keys)]), reused(l.places), reused(l.wanted)
}

// loadRefs finds out which documents a field of the objects refers to. They are
// read with those of all other fields of the level.
func (r *run) loadRefs(w wanting, given, i int, objects []*storage.Object) {
	q, l := &r.queues[w.queue], &r.loader
	if r.late == nil {
		r.late = r.of.Memory(r.ctx, len(objects)*visitBytes)
	}
	if r.late != nil {
		return
	}
	q.visits = slices.Grow(q.visits, len(objects))
	arg, _ := r.args[given].(referenceArgs)
	settled := func() error { return nil }
	if arg.AsOf != nil { // it is checked once
		settled = sync.OnceValue(func() error { return r.of.store.CheckInstant(r.ctx, *arg.AsOf) })
	}
	for _, o := range objects {
		if l.Full() {
			return
		}
		var v visit
		if v.err = settled(); v.err == nil {
			l.keys, v.null, v.err = o.AppendRefs(l.keys[:0], i)
		}
		if v.err == nil && len(l.keys) > 0 {
			at, pinned := o.Of().At(), o.Of().Pinned()
			if arg.AsOf != nil {
				at, pinned = *arg.AsOf, true
			}
			if cap(l.places)-len(l.places) < len(l.keys) { // visits keep those before
				l.places = make([]dataloader.Place, 0, max(len(l.keys), min(2*cap(l.places), placesTogether)))
			}
			before := len(l.places)
			l.places, v.err = l.Want(l.places, w.t, at, pinned, l.keys)
			v.places = l.places[before:]
		} else {
			_ = l.Follow(1) // where that is too much, all is
		}
		q.visits = append(q.visits, v)
	}
	l.wanted = append(l.wanted, w)
}

// readLevels reads what is wanted, level after level, until nothing is, with one call
// of the store for each type and level. It returns an error where more references
// would be followed than is allowed, or there is no memory for them; nothing can be written then, as
// visits are missing.
func (r *run) readLevels() error {
	l := &r.loader
	for read := 0; read < len(l.wanted) && !l.Full() && r.late == nil; {
		level := l.wanted[read:]
		read = len(l.wanted)
		for _, w := range level {
			r.fetch(w.t, level)
		}
		for _, w := range level {
			w.inner.load(r, r.found(w))
		}
	}
	l.wanted = reused(l.wanted)
	return cmp.Or(r.late, l.Follow(0))
}

// fetch reads the documents of a type that a level wants. If that fails, the visits
// that want one of them get the error.
func (r *run) fetch(t *record.Type, level []wanting) {
	refs := r.loader.Missing(t)
	if len(refs) == 0 {
		return
	}
	var docs []*storage.Document
	panicked, err := r.call(func() (err error) {
		docs, err = r.of.store.GetKeys(r.ctx, t, refs, *r.plan.refs[t])
		return err
	})
	if panicked {
		docs = slices.Repeat([]*storage.Document{broken}, len(refs))
	}
	if err != nil {
		r.refuse(t, level, panicked, err)
	}
	r.loader.Fill(t, docs)
}

// refuse gives the visits that want documents of a type the error of reading them.
func (r *run) refuse(t *record.Type, level []wanting, panicked bool, err error) {
	for _, w := range level {
		visits := r.queues[w.queue].visits
		for i := range visits {
			v := &visits[i]
			if w.t != t || !slices.ContainsFunc(v.places, dataloader.Place.Wanted) {
				continue
			}
			v.err = err
			if panicked {
				err = errElsewhere()
			}
		}
	}
}

// found returns the documents that a field's visits found; nil where nothing has to
// be read for them.
func (r *run) found(w wanting) []*storage.Object {
	var found []*storage.Object
	visits := r.queues[w.queue].visits
	for i := range visits {
		v := &visits[i]
		if v.err == nil && slices.ContainsFunc(v.places, isBroken) {
			v.err = errElsewhere()
		}
		if v.err != nil || len(w.inner.loads) == 0 {
			continue
		}
		for _, p := range v.places {
			if d := p.Document(); d != nil {
				found = append(found, &d.Object)
			}
		}
	}
	return found
}
