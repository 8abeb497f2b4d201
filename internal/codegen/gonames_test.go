package codegen_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/codegen"
	"github.com/asof/asof/internal/codegen/codegentest"
	"github.com/asof/asof/storage"
)

// goNamesFile has a field for every name that models have already in Go.
const goNamesFile = "testdata/expand/gonames.graphqls"

// What package storage adds to documents and objects is added to the file as
// well, from which a server is built.
func TestGoNamesAreComplete(t *testing.T) {
	b, err := os.ReadFile(goNamesFile)
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := codegen.Read(&ast.Source{Name: goNamesFile, Input: string(b)})
	if err != nil {
		t.Fatal(err)
	}
	names := func(fields []*codegen.Field) []string {
		var out []string
		for _, f := range fields {
			out = append(out, strings.ToLower(f.Name))
		}
		return out
	}
	doc := catalogue.Documents[slices.IndexFunc(catalogue.Documents, func(d *codegen.Document) bool { return d.Name == "Resolver" })]
	obj := catalogue.Objects[slices.IndexFunc(catalogue.Objects, func(o *codegen.Object) bool { return o.Name == "Same" })]
	tests := []struct {
		model  reflect.Type
		fields []string
	}{
		{reflect.TypeFor[*storage.Document](), append(names(doc.Fields), "id", "key", "version", "versioninfo")}, // the latter are reserved
		{reflect.TypeFor[*storage.Object](), names(obj.Fields)},
	}
	for _, test := range tests {
		has := []string{test.model.Elem().Name()}
		for m := range test.model.Methods() {
			has = append(has, m.Name)
		}
		for _, f := range reflect.VisibleFields(test.model.Elem()) {
			if f.IsExported() {
				has = append(has, f.Name)
			}
		}
		for _, name := range has {
			if !slices.Contains(test.fields, strings.ToLower(name)) {
				t.Errorf("no field in %s is called as %v.%s", goNamesFile, test.model, name)
			}
		}
	}
}

// Fields and types can have names that the models, resolvers and package
// storage have already.
func everyName(t *testing.T, url string) {
	t.Helper()
	tests := []struct{ name, query, want string }{
		{
			"written",
			`mutation { createResolver(input: {key: "r", data: {document: "d", rawField: "f", type: "t", base: "s", of: ["s", "x"], json: {a: 1}, siblings: "b",
				instant: "2024-03-01T00:00:00Z", object: [{document: "od", id: "oi", object: {object: 3, document: 4}}]}}) {
				... on CreateResolverSuccess { resolver { id document rawField type baseKey ofKeys json siblings instant int isNode
					object { document id object { object document element } } } } } }`,
			`{"createResolver": {"resolver": {"id": "Resolver:r", "document": "d", "rawField": "f", "type": "t", "baseKey": "s", "ofKeys": ["s", "x"],
				"json": {"a": 1}, "siblings": "b", "instant": "2024-03-01T00:00:00Z", "int": 1, "isNode": null,
				"object": [{"document": "od", "id": "oi", "object": {"object": 3, "document": "4", "element": []}}]}}}`,
		},
		{
			"referred to",
			`mutation { createStore(input: {key: "s", data: {store: "self", root: "r", stores: {error: "e", object: {document: 1}}}}) { __typename
				... on CreateStoreSuccess { store { store root { document } stores { error object { document } } } } } }`,
			`{"createStore": {"__typename": "CreateStoreSuccess", "store": {"store": "self", "root": {"document": "d"}, "stores": {"error": "e", "object": {"document": "1"}}}}}`,
		},
		{
			"read",
			`{ node(id: "Resolver:r") { id ... on Resolver { document base { store } of { store } versions { totalCount } blame(fields: [document]) { path } } }
				resolverHistory(key: "r") { versions { nodes { document } } changelog(fields: [rawField]) { nodes { path newValue } } }
				stores { nodes { key } } roots { nodes { key } } range { nodes { key } } }`,
			`{"node": {"id": "Resolver:r", "document": "d", "base": {"store": "self"}, "of": [{"store": "self"}, null], "versions": {"totalCount": 1},
				"blame": [{"path": "/document"}]}, "resolverHistory": {"versions": {"nodes": [{"document": "d"}]},
				"changelog": {"nodes": [{"path": "/rawField", "newValue": "f"}]}},
				"stores": {"nodes": [{"key": "s"}]}, "roots": {"nodes": []}, "range": {"nodes": []}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(decoded(t, test.want), codegentest.Query(t, url, test.query)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
