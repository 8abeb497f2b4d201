package plan

import (
	"context"
	"errors"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/storage"
)

// run is one execution of a plan, by one goroutine.
type run struct {
	*execution
	ctx     context.Context // of the root field that is being answered
	out     []byte          // the answer's data, as far as it is written (bound.go)
	late    error           // why no more of it is written
	counted int             // bytes of it that memory was taken for
	excess  int             // bytes that were dropped
	path    []step          // to what is being written
	// queues hold what was read and is not written yet.
	queues []queue
	loader loader
	text   []byte // for what is made and copied at once
	// views are objects nested in documents, one for each level.
	views    []*storage.Object
	borrowed int
}

// step is a field or a place in a list.
type step struct {
	at    *place // nil: index counts
	index int
}

// answer executes the plan and returns the data. Errors go to the context.
func (x *execution) answer(ctx context.Context) []byte {
	r, _ := x.of.runs.Get().(*run)
	if r == nil {
		r = new(run)
	}
	r.execution = x
	x.query.Object = "Query"
	r.ctx = graphql.WithFieldContext(ctx, &x.query)
	r.out = x.of.buffer(x.plan.size.Load())
	for len(r.queues) < x.plan.queues {
		r.queues = append(r.queues, queue{})
	}
	if !x.plan.root.write(r, struct{}{}) {
		r.out = append(r.out, "null"...)
	}
	out := r.out
	switch {
	case errors.Is(r.late, errLong): // also where some was taken away again
		out = out[:min(len(out), r.of.most+1)]
		out = append(out, make([]byte, max(r.of.most+1-len(out), 0))...)
	case r.late != nil:
		r.oc.Error(ctx, r.late)
	}
	x.plan.size.Store(int64(len(out)))
	r.release()
	return out
}

// release clears the run, so that its memory can be used for another request.
func (r *run) release() {
	for i := range r.queues {
		r.queues[i] = queue{visits: reused(r.queues[i].visits)}
	}
	for i := range r.views {
		r.views[i].Forget()
	}
	r.loader.reset()
	pool := &r.of.runs
	*r = run{
		queues: r.queues, views: r.views, loader: r.loader, text: reused(r.text),
		path: reused(r.path[:cap(r.path)]), // nothing is left of it
	}
	pool.Put(r)
}

// write appends an object. It returns false, and has appended nothing, where a
// non-null field is null; all fields are written even so, for their errors.
func (s *selection[P]) write(r *run, object P) bool {
	start := len(r.out)
	r.out = append(r.out, '{')
	valid := true
	for i := range s.fields {
		if r.late != nil {
			break
		}
		f := &s.fields[i]
		before := len(r.out)
		if before > start+1 {
			r.out = append(r.out, ',')
		}
		r.out = append(r.out, f.label...)
		if !f.write(r, &f.place, object) {
			valid = valid && !f.nonNull
			r.out = append(r.out, "null"...)
		}
		if f.repeated {
			r.back(before) // only the first of a name is in the answer
		}
		r.bound()
	}
	if !valid {
		r.back(start)
		return false
	}
	r.out = append(r.out, '}')
	return true
}

// copied makes the writer of a stored value, which it copies. Where none is stored it
// appends the text given instead; the field is null where that is empty.
func copied(i int, instead string) writer[*storage.Object] {
	return func(r *run, at *place, o *storage.Object) bool {
		raw, err := o.RawField(i)
		switch {
		case err != nil:
			r.fail(at, err)
			return false
		case raw == nil:
			r.out = append(r.out, instead...)
			return instead != ""
		default:
			r.out = append(r.out, raw...)
			return true
		}
	}
}

// writeIn appends an object that is the value of a field.
func (s *selection[P]) writeIn(r *run, at *place, object P) bool {
	r.path = append(r.path, step{at: at})
	ok := s.write(r, object)
	r.path = r.path[:len(r.path)-1]
	return ok
}

// writeList appends a list of n elements that is the value of a field, as write
// appends an object.
func writeList(r *run, at *place, n int, nonNull bool, element func(i int) bool) bool {
	l := r.list(at, nonNull)
	for i := range n {
		l.next()
		l.done(element(i))
	}
	return l.end()
}

// listing is a list that is being written.
type listing struct {
	r       *run
	start   int
	n       int
	nonNull bool
	invalid bool
}

func (r *run) list(at *place, nonNull bool) listing {
	l := listing{r: r, start: len(r.out), nonNull: nonNull}
	r.out = append(r.out, '[')
	r.path = append(r.path, step{at: at}, step{})
	return l
}

// next begins an element.
func (l *listing) next() {
	if l.n > 0 {
		l.r.out = append(l.r.out, ',')
	}
	l.r.path[len(l.r.path)-1].index = l.n
	l.n++
}

// done ends an element; ok is that of its writer.
func (l *listing) done(ok bool) {
	if !ok {
		l.invalid = l.invalid || l.nonNull
		l.r.out = append(l.r.out, "null"...)
	}
}

// end ends the list. Where an element is null that must not be, it removes the list
// and returns false.
func (l *listing) end() bool {
	l.r.path = l.r.path[:len(l.r.path)-2]
	if l.invalid {
		l.r.back(l.start)
		return false
	}
	l.r.out = append(l.r.out, ']')
	return true
}

// borrow returns a view to be used until giveBack, which is called in the
// opposite order.
func (r *run) borrow() *storage.Object {
	if r.borrowed == len(r.views) {
		r.views = append(r.views, new(storage.Object))
	}
	r.borrowed++
	return r.views[r.borrowed-1]
}

func (r *run) giveBack() { r.borrowed-- }
