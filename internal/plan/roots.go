package plan

import (
	"bytes"
	"context"
	"io"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/plan/args"
	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
)

// rootField makes the writer of a root field, which reads all that the field shows
// and appends it.
func rootField(b *planning, f graphql.CollectedField, _ *selection[struct{}]) writer[struct{}] {
	switch f.Name {
	case "node":
		return intercepted(nodeRoot(b, f))
	case "nodes":
		return intercepted(nodesRoot(b, f))
	}
	for _, t := range b.store.Types() {
		switch f.Name {
		case t.Singular:
			if f.Arguments.ForName("draft") != nil || f.Arguments.ForName("tag") != nil {
				return nil
			}
			return intercepted(documentRoot(b, f, t))
		case t.Plural:
			if f.Arguments.ForName("tag") != nil {
				return nil
			}
			return intercepted(pageRoot(b, f, t))
		}
	}
	return nil
}

// intercepted has a root field written within the interceptors of root fields.
func intercepted(write writer[struct{}]) writer[struct{}] {
	return func(r *run, at *place, _ struct{}) bool { return r.root(at, write) }
}

// root answers a root field within the interceptors of root fields. An interceptor
// may answer null for any field, also for a non-null one.
func (r *run) root(at *place, write writer[struct{}]) bool {
	outer := r.ctx
	call := &r.first
	if call.r != nil {
		call = new(rootCall)
	}
	*call = rootCall{
		r: r, at: at, write: write, start: len(r.out),
		field: graphql.RootFieldContext{Object: at.field.Name, Field: at.field},
	}
	shown := r.oc.RootResolverMiddleware(graphql.WithRootFieldContext(outer, &call.field), call.next)
	r.ctx = outer
	switch {
	case shown == graphql.Marshaler(call):
		return true
	case call.invalid:
		r.back(call.start)
		return false
	case shown == nil:
		shown = graphql.Null
	}
	if len(r.out) > r.of.most {
		return true // whatever is made of it, a part of it is not there
	}
	var text bytes.Buffer // what it answers may contain what was written
	shown.MarshalGQL(&text)
	r.back(call.start)
	r.out = append(r.out, text.Bytes()...)
	return true
}

// rootCall is the call of one root field. It is also its value, which is in its
// place already.
type rootCall struct {
	r          *run
	at         *place
	write      writer[struct{}]
	field      graphql.RootFieldContext
	start, end int
	invalid    bool // null, where that is not allowed
}

// next is called by the last interceptor.
func (c *rootCall) next(ctx context.Context) graphql.Marshaler {
	c.r.ctx = ctx
	if !c.written() {
		c.invalid = c.at.field.Definition.Type.NonNull
		return graphql.Null
	}
	c.end = len(c.r.out)
	return c
}

// MarshalGQL writes the value once more, for interceptors that wrap it.
func (c *rootCall) MarshalGQL(w io.Writer) {
	kept := len(c.r.out) // less than c.end, where it is too long
	_, _ = w.Write(c.r.out[min(c.start, kept):min(c.end, kept)])
}

// written writes the value, and turns panics into errors.
func (c *rootCall) written() (ok bool) {
	defer c.r.recovered(c.at, len(c.r.path), len(c.r.out), &ok)
	return c.write(c.r, c.at, struct{}{})
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
func documentRoot(b *planning, f graphql.CollectedField, t *storage.Type) writer[struct{}] {
	inner, id := documentSelection(b, t, f.Selections), b.arguments(f, args.OfDocument)
	return func(r *run, at *place, _ struct{}) bool {
		given, _ := r.args[id].(*args.Document)
		d, err := r.of.store.Document(r.ctx, t, given.Key, given.AsOf, given.Version, inner.need)
		if d == nil {
			return show(r, at, inner, nil, err)
		}
		return show(r, at, inner, &d.Object, err)
	}
}

// pageRoot makes the writer of a page of documents.
func pageRoot(b *planning, f graphql.CollectedField, t *storage.Type) writer[struct{}] {
	inner, id := connection(b, f, t), b.arguments(f, args.OfPage)
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
type anyDocument map[*storage.Type]*selection[*storage.Object]

func anySelection(b *planning, f graphql.CollectedField) anyDocument {
	a := anyDocument{}
	for _, t := range b.store.Types() {
		a[t] = documentSelection(b, t, f.Selections)
	}
	return a
}

func (a anyDocument) need(t *storage.Type) []string { return a[t].need }

// nodeRoot makes the writer of a document by its global id.
func nodeRoot(b *planning, f graphql.CollectedField) writer[struct{}] {
	inner, id := anySelection(b, f), b.arguments(f, args.OfNode)
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
	inner, id := anySelection(b, f), b.arguments(f, args.OfNodes)
	return func(r *run, at *place, _ struct{}) bool {
		given, _ := r.args[id].([]string)
		docs, bad, err := r.of.store.DocumentsByID(r.ctx, given, inner.need)
		if err != nil {
			r.fail(at, err)
			return false
		}
		for _, b := range bad {
			scalar.FailedElement(r.context(at), b.Index, b.Err)
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
func ofType(t *storage.Type, docs []*storage.Document) (objects []*storage.Object) {
	for _, d := range docs {
		if d != nil && d.Type() == t {
			objects = append(objects, &d.Object)
		}
	}
	return objects
}
