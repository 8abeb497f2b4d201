package scalar

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
)

// MarshalList writes the elements of a list one after another. The generated
// executor calls it in place of graphql.MarshalSliceConcurrently, whose
// arguments it takes, and which starts a goroutine per element: elements here
// come from memory, so goroutines would cost more than they gain.
func MarshalList(
	ctx context.Context, length int, _ int64, _ bool,
	element func(ctx context.Context, i int) graphql.Marshaler,
) (list graphql.Array) {
	list = make(graphql.Array, length)
	places := make([]place, length)
	for i := range places {
		p := &places[i]
		p.index = i
		p.field.Index = &p.index
		if !marshalElement(graphql.WithFieldContext(ctx, &p.field), list, i, element) {
			return nil
		}
	}
	return list
}

// place is where an element stands, for the paths of errors.
type place struct {
	field graphql.FieldContext
	index int
}

// marshalElement writes one element; false after a panic, which becomes an
// error of the element's path.
func marshalElement(
	ctx context.Context, list graphql.Array, i int,
	element func(ctx context.Context, i int) graphql.Marshaler,
) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			graphql.AddError(ctx, graphql.Recover(ctx, r))
		}
	}()
	list[i] = element(ctx, i)
	return true
}
