package plan

import (
	"context"
	"io"

	"github.com/99designs/gqlgen/graphql"

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

// root answers a root field within the interceptors of root fields.
func (r *run) root(at *place, write rootField) bool {
	outer, start, ok := r.ctx, len(r.out), false
	var value written
	ctx := graphql.WithRootFieldContext(outer, &graphql.RootFieldContext{Object: at.field.Name, Field: at.field})
	shown := r.oc.RootResolverMiddleware(ctx, func(ctx context.Context) graphql.Marshaler {
		r.ctx = ctx
		if ok = r.rootValue(at, write); !ok {
			return graphql.Null
		}
		value = written{&r.out, start, len(r.out)}
		return &value
	})
	r.ctx = outer
	if shown == graphql.Marshaler(&value) || !ok && shown == graphql.Marshaler(graphql.Null) {
		return ok
	}
	// An interceptor answers with something else.
	if shown == nil {
		shown = graphql.Null
	}
	other := writerOf{}
	shown.MarshalGQL(&other)
	r.out = r.out[:start]
	if !ok && at.field.Definition.Type.NonNull {
		return false
	}
	r.out = append(r.out, other.text...)
	return true
}

// written is a value that is already at its place in the answer.
type written struct {
	out        *[]byte
	start, end int
}

// MarshalGQL writes the value once more, for interceptors that wrap it.
func (v *written) MarshalGQL(w io.Writer) { _, _ = w.Write((*v.out)[v.start:v.end]) }

type writerOf struct{ text []byte }

func (w *writerOf) Write(b []byte) (int, error) {
	w.text = append(w.text, b...)
	return len(b), nil
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
			r.out, r.path, ok = r.out[:start], r.path[:0], false
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
	loadOne(inner, r, d)
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
		if len(inner.loads) > 0 {
			inner.load(r, []*storage.Page{page})
		}
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
		docs, err := b.store.DocumentsByID(r.ctx, given, inner.fields)
		if err != nil {
			r.fail(at, err)
			return false
		}
		for _, t := range b.store.Types() {
			inner.loadType(r, t, docs)
		}
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
