package httpapi

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator"
)

func TestVariableErrors(t *testing.T) {
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: `
		type Query { things(where: Where, keys: [ID!], key: ID, size: Size): Int }
		input Where { stars: Filter! and: [Where!] }
		input Filter { eq: Int gte: Int! }
		enum Size { BIG }`})
	query := gqlparser.MustLoadQueryWithRules(schema, `query($w: Where, $k: [ID!], $key: ID!,
		$s: Size) { things(where: $w, keys: $k, key: $key, size: $s) }`, nil)
	type object = map[string]any
	for name, c := range map[string]struct {
		variables object
		want      string
	}{
		"not given":        {object{}, `variable "$key" of type "ID!" was not provided`},
		"null":             {object{"key": nil}, `variable "$key" of type "ID!" cannot be null`},
		"unknown field":    {object{"w": object{"stras": 1}}, `variable "$w".stras: Where has no field "stras"; did you mean "stars"?`},
		"nothing near":     {object{"w": object{"wholly": 1}}, `variable "$w".wholly: Where has no field "wholly"`},
		"in a list":        {object{"w": object{"stars": object{"gte": 1}, "and": []any{object{"stars": object{"gt": 1}}}}}, `variable "$w".and[0].stars.gt: Filter has no field "gt"; did you mean "gte"?`},
		"a required field": {object{"w": object{"stars": object{}}}, `variable "$w".stars.gte of type "Int!" was not provided`},
		"null in a list":   {object{"k": []any{"a", nil}}, `variable "$k"[1] of type "ID!" cannot be null`},
		"another type":     {object{"w": object{"stars": object{"gte": true}}}, `variable "$w".stars.gte: cannot use bool as Int`},
		"no such value":    {object{"key": "a", "s": "TINY"}, `variable "$s": TINY is not a valid Size`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := validator.VariableValues(schema, query.Operations[0], c.variables)
			given, ok := errors.AsType[*gqlerror.Error](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			got := variableError(schema, query.Operations[0], given)
			if diff := cmp.Diff(c.want, got.Message); diff != "" {
				t.Error(diff)
			}
			if len(got.Path) != 0 || len(got.Locations) != 1 {
				t.Errorf("path %v, locations %v; want no path and one location", got.Path, got.Locations)
			}
		})
	}
	other := gqlerror.Errorf("something else")
	if got := variableError(schema, query.Operations[0], other); got != other {
		t.Errorf("another error was changed to %v", got)
	}
}
