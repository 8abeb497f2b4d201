package plan

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
)

// fail reports the error of a field, with the path to it and where it stands in
// the request.
func (r *run) fail(at *place, err error) {
	ctx := r.context(at)
	r.oc.Error(ctx, graphql.AddFieldLocationToError(ctx, err))
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
