package scalar_test

import (
	"context"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/scalar"
)

// listContext is a context in which an operation runs that asks for the field "list".
func listContext(t *testing.T) context.Context {
	t.Helper()
	ctx := graphql.WithOperationContext(t.Context(), &graphql.OperationContext{RecoverFunc: graphql.DefaultRecover})
	ctx = graphql.WithResponseContext(ctx, graphql.DefaultErrorPresenter, graphql.DefaultRecover)
	return graphql.WithFieldContext(ctx, &graphql.FieldContext{
		Field: graphql.CollectedField{Field: &ast.Field{Name: "list", Alias: "list"}},
	})
}

func TestMarshalList(t *testing.T) {
	ctx := listContext(t)
	list := scalar.MarshalList(ctx, 3, 0, false, func(ctx context.Context, i int) graphql.Marshaler {
		if got, want := graphql.GetPath(ctx).String(), (ast.Path{ast.PathName("list"), ast.PathIndex(i)}).String(); got != want {
			t.Errorf("element %d has the path %s, want %s", i, got, want)
		}
		return scalar.MarshalInt(i * i)
	})
	if got := written(list); got != "[0,1,4]" {
		t.Errorf("got %s", got)
	}
	if got := written(scalar.MarshalList(ctx, 0, 0, false, nil)); got != "[]" {
		t.Errorf("an empty list is %s", got)
	}
}

// A panic in one element becomes an error with its path, and the list is null,
// as with the function that MarshalList takes the place of.
func TestMarshalListPanics(t *testing.T) {
	ctx := listContext(t)
	list := scalar.MarshalList(ctx, 3, 0, false, func(_ context.Context, i int) graphql.Marshaler {
		if i == 1 {
			panic("broken")
		}
		return scalar.MarshalInt(i)
	})
	if list != nil {
		t.Errorf("got %s", written(list))
	}
	errs := graphql.GetErrors(ctx)
	if len(errs) != 1 || errs[0].Path.String() != "list[1]" {
		t.Errorf("errors %v", errs)
	}
}
