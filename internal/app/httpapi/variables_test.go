package httpapi

import (
	"encoding/json"
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
		type Query { things(where: Where, keys: [ID!], key: ID, size: Size, n: Int, f: Float, b: Boolean, text: String): Int }
		input Where { stars: Filter! and: [Where!] }
		input Filter { eq: Int gte: Int! }
		enum Size { BIG SMALL }`})
	query := gqlparser.MustLoadQueryWithRules(schema, `query($w: Where, $k: [ID!], $key: ID!,
		$s: Size, $n: Int, $f: Float, $b: Boolean, $t: String) {
		things(where: $w, keys: $k, key: $key, size: $s, n: $n, f: $f, b: $b, text: $t) }`, nil)
	type object = map[string]any
	for name, c := range map[string]struct {
		variables object
		want      string
	}{
		"not given":      {object{}, `variable "$key" of type "ID!": must be defined`},
		"null":           {object{"key": nil}, `variable "$key" of type "ID!": cannot be null`},
		"unknown field":  {object{"w": object{"stras": 1}}, `variable "$w".stras of type "Where": unknown field`},
		"in a list":      {object{"w": object{"stars": object{"gte": 1}, "and": []any{object{"stars": object{"gt": 1}}}}}, `variable "$w".and[0].stars.gt of type "Where": unknown field`},
		"null in a list": {object{"k": []any{"a", nil}}, `variable "$k"[1] of type "[ID!]": cannot be null`},
		"a boolean":      {object{"w": object{"stars": object{"gte": true}}}, `variable "$w".stars.gte of type "Where": this is not a valid Int`},
		"a fraction":     {object{"key": "a", "n": json.Number("1.5")}, `variable "$n" of type "Int": this is not a valid Int`},
		"too large":      {object{"key": "a", "n": json.Number("-99999999999999999999")}, `variable "$n" of type "Int": this is not a valid Int`},
		"no boolean":     {object{"key": "a", "b": json.Number("1")}, `variable "$b" of type "Boolean": this is not a valid Boolean`},
		"a list":         {object{"w": []any{}}, `variable "$w" of type "Where": this is not a valid Where`},
		"no such value":  {object{"key": "a", "s": "TINY"}, `variable "$s" of type "Size": TINY is not a valid Size`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := validator.VariableValues(schema, query.Operations[0], c.variables)
			given, ok := errors.AsType[*gqlerror.Error](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			got := variableError(query.Operations[0], given)
			if diff := cmp.Diff(c.want, got.Message); diff != "" {
				t.Error(diff)
			}
			if len(got.Path) != 0 || len(got.Locations) != 1 {
				t.Errorf("path %v, locations %v; want no path and one location", got.Path, got.Locations)
			}
		})
	}
	other := gqlerror.Errorf("something else")
	if got := variableError(query.Operations[0], other); got != other {
		t.Errorf("another error was changed to %v", got)
	}
}

// Inputs that take one of several fields take exactly one in variables, too.
func TestVariablesOfOneField(t *testing.T) {
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: `
		type Query { a(ref: Ref, refs: [[Ref]], in: In): Int }
		input Ref @oneOf { version: Int asOf: String in: In }
		input In { ref: Ref n: Int }
		directive @oneOf on INPUT_OBJECT`})
	type object = map[string]any
	for typ, cases := range map[string][]struct {
		value any
		want  string
	}{
		"Ref": {
			{nil, ""},
			{object{"version": 1}, ""},
			{object{"in": object{}}, ""},
			{object{}, "$v"},
			{object{"version": nil}, "$v.version"},
			{object{"version": 1, "asOf": nil}, "$v.version"},
			{object{"version": 1, "asOf": "x"}, "$v.version"},
			{object{"in": object{"ref": object{"asOf": nil}}}, "$v.in.ref.asOf"},
		},
		"[[Ref]]": {
			{[]any{[]any{object{"version": 1}, nil}, object{"asOf": "x"}}, ""},
			{[]any{object{"version": 1}, []any{object{"asOf": nil}}}, "$v[1][0].asOf"},
			{object{}, "$v"},
			{[]any{[]any{[]any{object{}}}}, ""}, // refused for its type
		},
		"In": {{object{"n": nil, "ref": nil}, ""}, {object{"n": 1, "ref": object{}}, "$v.ref"}},
	} {
		query := gqlparser.MustLoadQueryWithRules(schema, "query ($v: "+typ+") { a("+map[string]string{"Ref": "ref", "[[Ref]]": "refs", "In": "in"}[typ]+": $v) }", nil)
		for _, c := range cases {
			if got := wrongOneOf(schema, query.Operations[0].VariableDefinitions[0].Type, c.value, ast.Path{ast.PathName("$v")}).String(); got != c.want {
				t.Errorf("%s %v: %q, want %q", typ, c.value, got, c.want)
			}
		}
	}
}

// What looks for inputs of one field takes no more for a value that is deeply nested.
func TestVariablesOfOneFieldDeep(t *testing.T) {
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: `
		type Query { a(where: Where): Int }
		input Where { a: Int b: Int c: Int d: Int not: Where }`})
	var value any = map[string]any{}
	for range 8_000 {
		value = map[string]any{"not": value}
	}
	c := measure("", func() gqlerror.List {
		if way := wrongOneOf(schema, ast.NamedType("Where", nil), value, nil); way != nil {
			t.Errorf("wrong: %.100s", way)
		}
		return nil
	})
	if c.bytes > mostBytes {
		t.Errorf("%v", c)
	}
}
