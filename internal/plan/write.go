package plan

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// run is one execution of a plan, by one goroutine.
type run struct {
	*execution
	ctx     context.Context // of the operation
	out     []byte          // the answer's data, as far as it is written (see bound)
	late    error           // why no more of it is written
	counted int             // bytes of it that memory was taken for
	excess  int             // bytes that were dropped
	failed  int             // errors that were reported
	path    []step          // to what is being written
	// queues hold what was read and is not written yet.
	queues []queue
	loader loader
	text   []byte // for what is made and copied at once
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
	case errors.Is(r.late, errLong): // also where null has taken some away again
		out = out[:min(len(out), r.of.MaxAnswer+1)]
		out = append(out, make([]byte, r.of.MaxAnswer+1-len(out))...)
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
	if r.plan.queues > 0 {
		r.loader.reset()
	}
	pool := &r.of.runs
	*r = run{
		queues: r.queues, loader: r.loader, text: reused(r.text),
		path: reused(r.path[:cap(r.path)]), // nothing is left of it
	}
	pool.Put(r)
}

// rootField makes the writer of a root field, which reads all that the field shows
// and appends it.
func rootField(b *planning, f graphql.CollectedField, _ *selection[struct{}]) writer[struct{}] {
	switch f.Name {
	case "node":
		return guarded(nodeRoot(b, f))
	case "nodes":
		return guarded(nodesRoot(b, f))
	}
	for _, t := range b.store.Types() {
		switch f.Name {
		case t.Singular:
			if f.Arguments.ForName("draft") != nil || f.Arguments.ForName("tag") != nil {
				return nil
			}
			return guarded(documentRoot(b, f, t))
		case t.Plural:
			if f.Arguments.ForName("tag") != nil {
				return nil
			}
			return guarded(pageRoot(b, f, t))
		}
	}
	return nil
}

// guarded has a root field answered with null and an error where writing it panics.
func guarded(write writer[struct{}]) writer[struct{}] {
	return func(r *run, at *place, _ struct{}) (ok bool) {
		defer r.recovered(at, len(r.path), len(r.out), &ok)
		return write(r, at, struct{}{})
	}
}

// show reads what the selections below the found object need, and writes the object;
// it returns false for nil.
func show[T any](r *run, at *place, inner *selection[*T], found *T, err error) bool {
	if err == nil && found != nil && len(inner.loads) > 0 {
		inner.load(r, []*T{found})
		err = r.readLevels()
	}
	if err != nil {
		r.fail(at, err)
		return false
	}
	return found != nil && inner.writeIn(r, at, found)
}

// documentRoot makes the writer of one document.
func documentRoot(b *planning, f graphql.CollectedField, t *record.Type) writer[struct{}] {
	inner, id := documentSelection(b, t, f.Selections), b.arguments(f, ofDocument)
	return func(r *run, at *place, _ struct{}) bool {
		given, _ := r.args[id].(*documentArgs)
		d, err := r.of.store.Document(r.ctx, t, given.Key, given.AsOf, given.Version, inner.need)
		if d == nil {
			return show(r, at, inner, nil, err)
		}
		return show(r, at, inner, &d.Object, err)
	}
}

// pageRoot makes the writer of a page of documents.
func pageRoot(b *planning, f graphql.CollectedField, t *record.Type) writer[struct{}] {
	inner, id := connection(b, f, t), b.arguments(f, ofPage)
	counts, shows := false, false
	for i := range inner.fields {
		switch inner.fields[i].field.Name {
		case "totalCount":
			counts = true
		case "__typename":
		default:
			shows = true
		}
	}
	return func(r *run, at *place, _ struct{}) bool {
		given, _ := r.args[id].(*storage.PageArgs)
		projected := *given
		projected.Fields, projected.CountOnly = inner.need, counts && !shows
		page, err := r.of.store.Page(r.ctx, t, &projected)
		return show(r, at, inner, page, err)
	}
}

// anyDocument is the selection on documents whose type is known only when they are
// read.
type anyDocument map[*record.Type]*selection[*storage.Object]

func anySelection(b *planning, f graphql.CollectedField) anyDocument {
	a := anyDocument{}
	for _, t := range b.store.Types() {
		a[t] = documentSelection(b, t, f.Selections)
	}
	return a
}

func (a anyDocument) need(t *record.Type) []string { return a[t].need }

// nodeRoot makes the writer of a document by its global id.
func nodeRoot(b *planning, f graphql.CollectedField) writer[struct{}] {
	inner, id := anySelection(b, f), b.arguments(f, ofNode)
	return func(r *run, at *place, _ struct{}) bool {
		given, _ := r.args[id].(string)
		d, err := r.of.store.DocumentByID(r.ctx, given, inner.need)
		if d == nil {
			return show[storage.Object](r, at, nil, nil, err)
		}
		return show(r, at, inner[d.Type()], &d.Object, err)
	}
}

// nodesRoot makes the writer of documents by their global ids.
func nodesRoot(b *planning, f graphql.CollectedField) writer[struct{}] {
	inner, id := anySelection(b, f), b.arguments(f, ofNodes)
	return func(r *run, at *place, _ struct{}) bool {
		given, _ := r.args[id].([]string)
		docs, bad, err := r.of.store.DocumentsByID(r.ctx, given, inner.need)
		if err != nil {
			r.fail(at, err)
			return false
		}
		for _, b := range bad {
			r.failElement(at, b.Index, b.Err)
		}
		for _, t := range r.of.store.Types() {
			if s := inner[t]; len(s.loads) > 0 {
				s.load(r, ofType(t, docs))
			}
		}
		if err := r.readLevels(); err != nil {
			r.fail(at, err)
			return false
		}
		return writeList(r, at, len(docs), false, func(i int) bool {
			return docs[i] != nil && inner[docs[i].Type()].write(r, &docs[i].Object)
		})
	}
}

// ofType are the documents of a type.
func ofType(t *record.Type, docs []*storage.Document) (objects []*storage.Object) {
	for _, d := range docs {
		if d != nil && d.Type() == t {
			objects = append(objects, &d.Object)
		}
	}
	return objects
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

// What follows appends values that are not stored as JSON in the form in which
// the wrapped schema writes them; true is for use as a writer's result.

func (r *run) int(n int) bool {
	r.out = strconv.AppendInt(r.out, int64(n), 10)
	return true
}

func (r *run) bool(b bool) bool {
	r.out = strconv.AppendBool(r.out, b)
	return true
}

func (r *run) string(s string) bool {
	r.out = rawjson.AppendString(r.out, s)
	return true
}

// optional appends a string; false for nil.
func (r *run) optional(s *string) bool { return s != nil && r.string(*s) }

func (r *run) instant(at driver.Instant) bool {
	r.out = at.Time().AppendFormat(append(r.out, '"'), "2006-01-02T15:04:05.999999Z")
	r.out = append(r.out, '"')
	return true
}

func writeID(r *run, _ *place, o *storage.Object) bool {
	r.text = o.Of().AppendID(r.text[:0])
	r.out = rawjson.AppendString(r.out, r.text)
	return true
}

func writeKey(r *run, _ *place, o *storage.Object) bool { return r.string(o.Of().Key()) }

func writeVersion(r *run, _ *place, o *storage.Object) bool { return r.int(o.Of().Version()) }

// cursor appends a cursor, whose text needs no escapes.
func (r *run) cursor(p *storage.Page, place int) bool {
	r.out = append(p.AppendCursor(append(r.out, '"'), place), '"')
	return true
}

// reused returns the memory of a list of an execution for another one, without
// what is in it, unless it is too large to be kept.
func reused[T any](list []T) []T {
	if cap(list) > mostReused {
		return nil
	}
	clear(list)
	return list[:0]
}

// mostReused is how many elements such a list has at most.
const mostReused = 4 << 10

// writtenPerLook is after how many bytes memory is taken for them.
const writtenPerLook = 64 << 10

// An answer's data may be longer than is allowed (MaxAnswer). One byte more than that is
// kept. Writing goes on for up to mostExcess bytes, which are dropped: a non-null field
// without a value may still remove an object, and the answer is sent if what remains is
// short enough. Recorded places in the data are exact within the allowed length; beyond it
// they only say that they are beyond it.
const mostExcess = 1 << 20

// errLong ends the writing of an answer that is too long. It is no error of the answer: the
// sender refuses the answer by its length.
var errLong = errors.New("the answer is too long")

// bound drops data beyond the allowed length, and ends the writing of an answer that is much
// too long or for which there is no memory. It is called after each field, so that at most
// one field is held in excess.
func (r *run) bound() {
	switch excess := len(r.out) - r.of.MaxAnswer; {
	case r.late != nil:
	case excess > 1:
		r.out = r.out[:r.of.MaxAnswer+1]
		if r.excess += excess; r.excess > mostExcess {
			r.late = errLong
		}
	case len(r.out)-r.counted >= writtenPerLook:
		r.late = r.of.Memory(r.ctx, len(r.out)-r.counted)
		r.counted = len(r.out)
		if cap(r.out)-len(r.out) < writtenPerLook { // it doubles: growing by a quarter, as append does, leaves five times as much behind
			r.out = slices.Grow(r.out, max(min(len(r.out), -excess), 0))
		}
	}
}

// back takes away what was written since the data was n bytes long.
func (r *run) back(n int) { r.out = r.out[:min(n, len(r.out))] }

// fail reports the error of a field, with the path to it and where it stands in
// the request. It ends the writing of an answer whose time is up: what fails has
// not asked the store, which looks at the time.
func (r *run) fail(at *place, err error) {
	if r.placed(err) {
		ctx := r.context(at)
		r.oc.Error(ctx, graphql.AddFieldLocationToError(ctx, err))
	}
}

// failElement is fail for an element of the list that a field is.
func (r *run) failElement(at *place, index int, err error) {
	if r.placed(err) {
		scalar.FailedElement(r.context(at), index, err)
	}
}

// placed says whether an error is to be reported with its place, and otherwise reports
// it without.
func (r *run) placed(err error) bool {
	if late := r.ctx.Err(); r.late == nil && late != nil {
		r.late = fault.Ended(late)
	}
	if r.failed++; r.failed > r.of.MaxErrors { // a place takes 2 KB
		r.oc.Error(r.ctx, err)
		return false
	}
	return true
}

// recovered reports a panic while a field was read or written, which is null
// then. It is deferred, with the lengths that the path and the data had before.
func (r *run) recovered(at *place, path, start int, ok *bool) {
	if failure := recover(); failure != nil {
		r.path, *ok = r.path[:path], false
		r.back(start)
		r.loader.wanted = reused(r.loader.wanted) // nobody waits for it any more
		ctx := r.context(at)
		r.oc.Error(ctx, r.oc.Recover(ctx, failure))
	}
}

// context makes the context that the field would have had: presenters of errors
// look for the path and the arguments.
func (r *run) context(at *place) context.Context {
	ctx := r.ctx
	for i := range r.path {
		if s := &r.path[i]; s.at != nil {
			ctx = r.fieldContext(ctx, s.at)
		} else {
			index := s.index
			ctx = graphql.WithFieldContext(ctx, &graphql.FieldContext{Index: &index})
		}
	}
	return r.fieldContext(ctx, at)
}

func (r *run) fieldContext(ctx context.Context, at *place) context.Context {
	fc := &graphql.FieldContext{Object: at.object, Field: at.field, IsMethod: true}
	if len(at.field.Arguments) > 0 {
		// They could be read: otherwise there would be no plan.
		fc.Args = at.field.ArgumentMap(r.oc.Variables)
	}
	return graphql.WithFieldContext(ctx, fc)
}
