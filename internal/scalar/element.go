package scalar

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/storage"
)

// FailedElement reports the error of an element of the list that the context's
// field is; the element is null then. The error has the path of the element,
// and stands in the request where the field does.
func FailedElement(ctx context.Context, index int, err error) {
	path := append(graphql.GetPath(ctx), ast.PathIndex(index))
	graphql.AddError(ctx, graphql.AddFieldLocationToError(ctx, gqlerror.WrapPath(path, err)))
}

// Nodes answers Query.nodes: what is wrong with one id is the error of its
// element, and the others are answered.
func Nodes(ctx context.Context, store *storage.Store, ids []string) ([]storage.Node, error) {
	found, bad, err := store.Nodes(ctx, ids)
	for _, b := range bad {
		FailedElement(ctx, b.Index, b.Err)
	}
	return found, err
}
