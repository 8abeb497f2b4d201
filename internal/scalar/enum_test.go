package scalar_test

import (
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/codegen"
	"github.com/asof/asof/internal/scalar"
)

// Every value that the schema declares can be read and written, and no other.
func TestEnums(t *testing.T) {
	c, err := codegen.Read(&ast.Source{Name: "test.graphqls", Input: "type Note @versioned { text: String }"})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "expanded", Input: c.SDL})
	if err != nil {
		t.Fatal(err)
	}
	roundTrips := map[string]func(v any) (string, error){
		"OrderDirection": func(v any) (string, error) {
			x, err := scalar.UnmarshalOrderDirection(v)
			return written(scalar.MarshalOrderDirection(x)), err
		},
		"ConflictPolicy": func(v any) (string, error) {
			x, err := scalar.UnmarshalConflictPolicy(v)
			return written(scalar.MarshalConflictPolicy(x)), err
		},
		"Operation": func(v any) (string, error) {
			x, err := scalar.UnmarshalOperation(v)
			return written(scalar.MarshalOperation(x)), err
		},
	}
	for name, roundTrip := range roundTrips {
		def := schema.Types[name]
		if def == nil || len(def.EnumValues) == 0 {
			t.Fatalf("the schema has no enum %s", name)
		}
		for _, v := range def.EnumValues {
			if got, err := roundTrip(v.Name); err != nil || got != `"`+v.Name+`"` {
				t.Errorf("%s.%s: %s, %v", name, v.Name, got, err)
			}
		}
		for _, bad := range []any{"asc", "merge", "create", "", 1, nil} {
			if got, err := roundTrip(bad); err == nil {
				t.Errorf("%s: %v is read as %s", name, bad, got)
			}
		}
	}
	if _, err := scalar.UnmarshalOrderDirection("desc"); err == nil || err.Error() != `OrderDirection cannot be "desc"; it is one of ASC, DESC` {
		t.Errorf("the error is %v", err)
	}
}
