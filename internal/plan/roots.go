package plan

import (
	"bytes"
	"context"
	"io"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
)

// rootKind makes the writer of a root field.
type rootKind func(b *planning, f graphql.CollectedField) rootField

// rootField reads a root field, and what belongs to it, and appends it.
type rootField func(r *run, at *place) bool

// rootSelection compiles the operation's root fields.
func rootSelection(b *planning) *selection[struct{}] {
	return selectionOf(b, "Query", b.oc.Operation.SelectionSet, func(b *planning, f graphql.CollectedField, _ *selection[struct{}]) writer[struct{}] {
		kind := b.roots[f.Name]
		if kind == nil {
			return nil
		}
		write := kind(b, f)
		if write == nil {
			return nil
		}
		return func(r *run, at *place, _ struct{}) bool { return r.root(at, write) }
	})
}

// root answers a root field within the interceptors of root fields. Null that
// an interceptor answers is allowed for any field.
func (r *run) root(at *place, write rootField) bool {
	outer := r.ctx
	call := &r.first
	if call.r != nil {
		call = new(rootCall)
	}
	*call = rootCall{r: r, at: at, write: write, start: len(r.out)}
	call.field = graphql.RootFieldContext{Object: at.field.Name, Field: at.field}
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
	write      rootField
	field      graphql.RootFieldContext
	start, end int
	invalid    bool // null, where that is not allowed
}

// next is called by the last interceptor.
func (c *rootCall) next(ctx context.Context) graphql.Marshaler {
	c.r.ctx = ctx
	if !c.r.rootValue(c.at, c.write) {
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

// rootValue turns panics into errors of what was being written.
func (r *run) rootValue(at *place, write rootField) (ok bool) {
	start := len(r.out)
	defer func() {
		if failure := recover(); failure != nil {
			ctx := r.ctx
			if len(r.path) == 0 {
				ctx = r.fieldContext(ctx, at)
			} else {
				ctx = r.pathContext(ctx)
			}
			r.oc.Error(ctx, r.oc.Recover(ctx, failure))
			r.back(start)
			r.loader.level.reset() // nobody waits for it any more
			r.path, ok = r.path[:0], false
		}
	}()
	return write(r, at)
}

// documentRoot makes the writer of one document.
func documentRoot(b *planning, f graphql.CollectedField, t *storage.Type) rootField {
	need := &names{list: []string{}}
	inner := documentSelection(b, t, f.Selections, need)
	if inner == nil {
		return nil
	}
	id := b.arguments(f, documentArguments)
	return func(r *run, at *place) bool {
		args, _ := r.args[id].(*documentArgs)
		d, err := b.store.Document(r.ctx, t, args.key, args.asOf, args.version, need.list)
		return r.document(at, inner, d, err)
	}
}

// document appends a document that was read; false for none.
func (r *run) document(at *place, inner *selection[*storage.Object], d *storage.Document, err error) bool {
	if err != nil {
		r.fail(at, err)
		return false
	}
	if d == nil {
		return false
	}
	inner.read(r, &d.Object)
	r.enter(at)
	defer r.leave()
	return inner.write(r, &d.Object)
}

// pageRoot makes the writer of a page of documents.
func pageRoot(b *planning, f graphql.CollectedField, t *storage.Type) rootField {
	need := &names{list: []string{}}
	inner := connection(b, t, f.Definition.Type.Name(), f.Selections, need)
	if inner == nil {
		return nil
	}
	id := b.arguments(f, pageArguments)
	return func(r *run, at *place) bool {
		args, _ := r.args[id].(*storage.PageArgs)
		projected := *args
		projected.Fields = need.list
		page, err := b.store.Page(r.ctx, t, &projected)
		if err != nil {
			r.fail(at, err)
			return false
		}
		inner.read(r, page)
		r.enter(at)
		defer r.leave()
		return inner.write(r, page)
	}
}

// anyType is what is asked of documents whose type is not known before they are
// read.
type anyType struct {
	byType map[*storage.Type]*selection[*storage.Object]
	needs  map[*storage.Type]*names
}

func anyDocument(b *planning, f graphql.CollectedField) *anyType {
	a := &anyType{byType: map[*storage.Type]*selection[*storage.Object]{}, needs: map[*storage.Type]*names{}}
	for _, t := range b.store.Types() {
		need := &names{list: []string{}}
		a.byType[t], a.needs[t] = documentSelection(b, t, f.Selections, need), need
	}
	if b.plan.err != nil {
		return nil
	}
	return a
}

func (a *anyType) fields(t *storage.Type) []string { return a.needs[t].list }

// nodeRoot makes the writer of a document by its global id.
func nodeRoot(b *planning, f graphql.CollectedField) rootField {
	inner := anyDocument(b, f)
	if inner == nil {
		return nil
	}
	id := b.arguments(f, idArgument)
	return func(r *run, at *place) bool {
		given, _ := r.args[id].(string)
		d, err := b.store.DocumentByID(r.ctx, given, inner.fields)
		if d == nil {
			return r.document(at, nil, nil, err)
		}
		return r.document(at, inner.byType[d.Type()], d, err)
	}
}

// nodesRoot makes the writer of documents by their global ids.
func nodesRoot(b *planning, f graphql.CollectedField) rootField {
	inner := anyDocument(b, f)
	if inner == nil {
		return nil
	}
	id := b.arguments(f, idsArgument)
	return func(r *run, at *place) bool {
		given, _ := r.args[id].([]string)
		docs, bad, err := b.store.DocumentsByID(r.ctx, given, inner.fields)
		if err != nil {
			r.fail(at, err)
			return false
		}
		if len(bad) > 0 {
			ctx := r.context(at)
			for _, b := range bad {
				scalar.FailedElement(ctx, b.Index, b.Err)
			}
		}
		for _, t := range b.store.Types() {
			inner.loadType(r, t, docs)
		}
		r.readLevels()
		r.enter(at)
		defer r.leave()
		return writeList(r, len(docs), false, func(i int) bool {
			return docs[i] != nil && inner.byType[docs[i].Type()].write(r, &docs[i].Object)
		})
	}
}

func (a *anyType) loadType(r *run, t *storage.Type, docs []*storage.Document) {
	s := a.byType[t]
	if len(s.loads) == 0 {
		return
	}
	var objects []*storage.Object
	for _, d := range docs {
		if d != nil && d.Type() == t {
			objects = append(objects, &d.Object)
		}
	}
	s.load(r, objects)
}
