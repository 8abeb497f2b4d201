package scalar_test

import (
	"errors"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/scalar"
)

func field(name string) graphql.CollectedField {
	return graphql.CollectedField{Field: &ast.Field{Name: name, Alias: name, Position: &ast.Position{Line: 3, Column: 5}}}
}

func TestFields(t *testing.T) {
	f := scalar.NewFields([]graphql.CollectedField{field("a"), field("b"), field("a"), field("c")})
	for i := range f.Values {
		f.Values[i] = scalar.MarshalInt(i)
	}
	if got, want := written(f), `{"a":0,"b":1,"c":3}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := written(scalar.NewFields(nil)); got != "{}" {
		t.Errorf("an object without fields is %s", got)
	}
}

func TestStored(t *testing.T) {
	ctx := listContext(t)
	oc := graphql.GetOperationContext(ctx)
	if got := written(scalar.Stored(ctx, oc, field("a"), "T", []byte(`"x"`), nil)); got != `"x"` {
		t.Errorf("got %s", got)
	}
	if got := scalar.Stored(ctx, oc, field("a"), "T", nil, nil); got != graphql.Null {
		t.Errorf("nothing is %s, not the Null that the executor compares with", written(got))
	}
	if got := written(scalar.StoredList(ctx, oc, field("a"), "T", nil, nil)); got != "[]" {
		t.Errorf("no list is %s", got)
	}
	if len(graphql.GetErrors(ctx)) > 0 {
		t.Fatalf("errors %v", graphql.GetErrors(ctx))
	}
	if got := scalar.StoredList(ctx, oc, field("a"), "T", nil, errors.New("does not fit")); got != graphql.Null {
		t.Errorf("an error is answered with %s", written(got))
	}
	errs := graphql.GetErrors(ctx)
	if len(errs) != 1 || errs[0].Path.String() != "list.a" || len(errs[0].Locations) != 1 || errs[0].Message != "does not fit" {
		t.Errorf("errors %v", errs)
	}
}
