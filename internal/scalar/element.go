package scalar

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// FailedElement reports the error of an element of the list that the context's
// field is; the element is null then. The error has the path of the element,
// and stands in the request where the field does.
func FailedElement(ctx context.Context, index int, err error) {
	path := append(graphql.GetPath(ctx), ast.PathIndex(index))
	graphql.AddError(ctx, graphql.AddFieldLocationToError(ctx, gqlerror.WrapPath(path, err)))
}
