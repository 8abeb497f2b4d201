package plan

import (
	"context"
	"errors"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// fail reports the error of a field, with the path to it and where it stands in
// the request.
func (r *run) fail(at *place, err error) {
	ctx := r.context(at)
	r.oc.Error(ctx, graphql.AddFieldLocationToError(ctx, err))
}

// recovered reports a panic while a field was read, whose value is null then. It
// is deferred.
func (r *run) recovered(at *place, ok *bool) {
	if failure := recover(); failure != nil {
		ctx := r.context(at)
		r.oc.Error(ctx, r.oc.Recover(ctx, failure))
		*ok = false
	}
}

// whileReading is the error of a panic while something was read, perhaps for
// many fields: without the place of any.
func (r *run) whileReading(failure any) error {
	err := r.oc.RecoverFunc(r.ctx, failure)
	if placed, ok := errors.AsType[*gqlerror.Error](err); ok && placed.Err != nil {
		return placed.Err
	}
	return err
}

// context makes the context that the field would have had: presenters of errors
// look for the path and the arguments.
func (r *run) context(at *place) context.Context {
	return r.fieldContext(r.pathContext(r.ctx), at)
}

func (r *run) pathContext(ctx context.Context) context.Context {
	for i := range r.path {
		if s := &r.path[i]; s.at != nil {
			ctx = r.fieldContext(ctx, s.at)
		} else {
			index := s.index
			ctx = graphql.WithFieldContext(ctx, &graphql.FieldContext{Index: &index})
		}
	}
	return ctx
}

func (r *run) fieldContext(ctx context.Context, at *place) context.Context {
	fc := &graphql.FieldContext{Object: at.object, Field: at.field, IsMethod: true}
	if len(at.field.Arguments) > 0 {
		// They could be read: otherwise there would be no plan.
		fc.Args = at.field.ArgumentMap(r.oc.Variables)
	}
	return graphql.WithFieldContext(ctx, fc)
}
