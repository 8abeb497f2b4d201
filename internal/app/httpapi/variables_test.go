package httpapi

import (
	"encoding/json"
	"errors"
	"strings"
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
		"not given":        {object{}, `variable "$key" of type "ID!" was not provided`},
		"null":             {object{"key": nil}, `variable "$key" of type "ID!" cannot be null`},
		"unknown field":    {object{"w": object{"stras": 1}}, `variable "$w".stras: Where has no field "stras"; did you mean "stars"?`},
		"nothing near":     {object{"w": object{"wholly": 1}}, `variable "$w".wholly: Where has no field "wholly"`},
		"in a list":        {object{"w": object{"stars": object{"gte": 1}, "and": []any{object{"stars": object{"gt": 1}}}}}, `variable "$w".and[0].stars.gt: Filter has no field "gt"; did you mean "gte"?`},
		"a required field": {object{"w": object{"stars": object{}}}, `variable "$w".stars.gte of type "Int!" was not provided`},
		"null in a list":   {object{"k": []any{"a", nil}}, `variable "$k"[1] of type "ID!" cannot be null`},
		"a boolean":        {object{"w": object{"stars": object{"gte": true}}}, `variable "$w".stars.gte: Int cannot be true; write a whole number without quotes, as 42`},
		"a fraction":       {object{"w": object{"stars": object{"gte": json.Number("1.5")}}}, `variable "$w".stars.gte: Int cannot be 1.5; write a whole number without quotes, as 42`},
		"a fraction above": {object{"key": "a", "n": json.Number("1.5")}, `variable "$n": Int cannot be 1.5; write a whole number without quotes, as 42`},
		"a text":           {object{"key": "a", "n": "many"}, `variable "$n": Int cannot be "many"; write a whole number without quotes, as 42`},
		"too large":        {object{"key": "a", "n": json.Number("-99999999999999999999")}, `variable "$n": Int cannot be -99999999999999999999; it has 32 bits: -2147483648 to 2147483647`},
		"very large": {object{"key": "a", "n": json.Number(strings.Repeat("9", 200))}, `variable "$n": Int cannot be ` +
			strings.Repeat("9", 100) + `…; it has 32 bits: -2147483648 to 2147483647`},
		"no number":           {object{"key": "a", "f": []any{}}, `variable "$f": Float cannot be []; write a number without quotes, as 0.5`},
		"a number too large":  {object{"key": "a", "f": json.Number("1e999")}, `variable "$f": Float cannot be 1e999; write a number without quotes, as 0.5`},
		"no boolean":          {object{"key": "a", "b": json.Number("1")}, `variable "$b": Boolean cannot be 1; write true or false, without quotes`},
		"no text":             {object{"key": "a", "t": object{"<a>": "é"}}, `variable "$t": String cannot be {"<a>":"é"}; write it in quotes, as "text"`},
		"no id":               {object{"key": []any{nil}}, `variable "$key": ID cannot be [null]; write it as a string, as "vaultwarden", or as an integer`},
		"no id in a list":     {object{"key": "a", "k": []any{"a", true}}, `variable "$k"[1]: ID cannot be true; write it as a string, as "vaultwarden", or as an integer`},
		"a list":              {object{"w": []any{}}, `variable "$w": Where cannot be []; it is an object, as {"stars": …}`},
		"a number":            {object{"w": json.Number("3")}, `variable "$w": Where cannot be 3; it is an object, as {"stars": …}`},
		"one for a list":      {object{"key": "a", "w": object{"stars": object{"gte": 1}, "and": "x"}}, `variable "$w".and[0]: Where cannot be "x"; it is an object, as {"stars": …}`},
		"no such value":       {object{"key": "a", "s": "TINY"}, `variable "$s": Size cannot be "TINY"; it is one of BIG, SMALL`},
		"nearly a value":      {object{"key": "a", "s": "SMALLL"}, `variable "$s": Size cannot be "SMALLL"; did you mean "SMALL"?`},
		"a value in quotes":   {object{"key": "a", "s": `"BIG"`}, `variable "$s": Size cannot be "\"BIG\""; did you mean "BIG"?`},
		"an object, no value": {object{"key": "a", "s": object{}}, `variable "$s": Size cannot be {}; it is one of BIG, SMALL`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := validator.VariableValues(schema, query.Operations[0], c.variables)
			given, ok := errors.AsType[*gqlerror.Error](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			got := variableError(schema, query.Operations[0], c.variables, true, given)
			if diff := cmp.Diff(c.want, got.Message); diff != "" {
				t.Error(diff)
			}
			if len(got.Path) != 0 || len(got.Locations) != 1 {
				t.Errorf("path %v, locations %v; want no path and one location", got.Path, got.Locations)
			}
		})
	}
	other := gqlerror.Errorf("something else")
	if got := variableError(schema, query.Operations[0], nil, true, other); got != other {
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
