package plan

import (
	"errors"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/storage"
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
	return &storage.Error{Code: storage.CodeInternal, Message: "internal error"}
}
