package web_test

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/99designs/gqlgen/graphql/introspection"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// fakeAnswer is what the fake server answers to everything but introspection.
const fakeAnswer = `{"data":{"projects":{"nodes":[{"key":"lanternfish","name":"Lanternfish"}]}},` +
	`"extensions":{"asOf":"2026-01-15T09:30:00.000001Z"}}`

// fakeGraphQL answers introspection from an SDL file, and anything else always
// alike: the Playground's tests need no store.
func fakeGraphQL(t *testing.T, sdlFile string) http.Handler {
	t.Helper()
	sdl, err := os.ReadFile(sdlFile)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: sdlFile, Input: string(sdl)})
	if err != nil {
		t.Fatal(err)
	}
	described, err := json.Marshal(object{"data": object{"__schema": describe(introspection.WrapSchema(schema))}})
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ OperationName string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/graphql-response+json")
		answer := []byte(fakeAnswer)
		if body.OperationName == "IntrospectionQuery" {
			answer = described
		}
		_, _ = w.Write(answer)
	})
}

type object map[string]any

func describe(s *introspection.Schema) object {
	var types, directives []object
	for _, t := range s.Types() {
		types = append(types, describeType(&t))
	}
	for _, d := range s.Directives() {
		directives = append(directives, object{
			"name": d.Name, "description": d.Description(), "isRepeatable": d.IsRepeatable,
			"locations": d.Locations, "args": describeInputs(d.Args),
		})
	}
	return object{
		"description": s.Description(), "queryType": object{"name": s.QueryType().Name()},
		"mutationType": nil, "subscriptionType": nil, "types": types, "directives": directives,
	}
}

func describeType(t *introspection.Type) object {
	o := object{
		"kind": t.Kind(), "name": t.Name(), "description": t.Description(), "isOneOf": t.IsOneOf(),
		"specifiedByURL": t.SpecifiedByURL(), "inputFields": nil, "possibleTypes": nil,
	}
	fields, values := []object{}, []object{}
	for _, f := range t.Fields(true) {
		fields = append(fields, object{
			"name": f.Name, "description": f.Description(), "args": describeInputs(f.Args), "type": ref(f.Type),
			"isDeprecated": f.IsDeprecated(), "deprecationReason": f.DeprecationReason(),
		})
	}
	for _, v := range t.EnumValues(true) {
		values = append(values, object{
			"name": v.Name, "description": v.Description(),
			"isDeprecated": v.IsDeprecated(), "deprecationReason": v.DeprecationReason(),
		})
	}
	o["fields"], o["enumValues"], o["interfaces"] = fields, values, []object{}
	return o
}

func describeInputs(inputs []introspection.InputValue) []object {
	out := []object{}
	for _, in := range inputs {
		out = append(out, object{
			"name": in.Name, "description": in.Description(), "type": ref(in.Type), "defaultValue": in.DefaultValue,
			"isDeprecated": false, "deprecationReason": nil,
		})
	}
	return out
}

func ref(t *introspection.Type) object {
	if t == nil {
		return nil
	}
	return object{"kind": t.Kind(), "name": t.Name(), "ofType": ref(t.OfType())}
}
