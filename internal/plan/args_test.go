package plan

import (
	"errors"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

type readArgs struct {
	Key   string
	First *int
	Names []string
}

// reader counts how often the key is converted.
type reader struct{ keys int }

func (r *reader) read(g *givenArgs) any {
	return &readArgs{
		Key:   requiredArg(g, "key", func(v any) (string, error) { r.keys++; return graphql.UnmarshalString(v) }),
		First: optionalArg(g, "first", graphql.UnmarshalInt),
		Names: listArg(g, "names", graphql.UnmarshalString),
	}
}

const argsSchema = "type Query { a(key: String!, first: Int = 7, names: [String!]): Int }"

// fieldIn is the only field of a query.
func fieldIn(t *testing.T, schemaText, query string) graphql.CollectedField {
	t.Helper()
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: schemaText})
	doc, errs := gqlparser.LoadQueryWithRules(schema, query, nil)
	if errs != nil {
		t.Fatal(errs)
	}
	f, _ := doc.Operations[0].SelectionSet[0].(*ast.Field)
	return graphql.CollectedField{Field: f}
}

func TestArguments(t *testing.T) {
	seven, two := 7, 2
	for _, test := range []struct {
		query     string
		variables map[string]any
		want      readArgs
		keys      int // conversions of the key in three requests, and at compilation
	}{
		{`{ a(key: "k") }`, nil, readArgs{"k", &seven, nil}, 1},
		{`{ a(key: "k", first: null, names: "n") }`, nil, readArgs{"k", nil, []string{"n"}}, 1},
		{`query ($k: String!) { a(key: $k, first: 2, names: []) }`, map[string]any{"k": "v"}, readArgs{"v", &two, []string{}}, 3},
		{`query ($n: Int) { a(key: "k", first: $n) }`, map[string]any{"n": 2}, readArgs{"k", &two, nil}, 3},
		{`query ($n: Int) { a(key: "k", first: $n) }`, map[string]any{"n": nil}, readArgs{"k", nil, nil}, 3},
		{`query ($n: Int) { a(key: "k", first: $n) }`, nil, readArgs{"k", &seven, nil}, 3},
		{`query ($n: String!) { a(key: "k", names: ["m", $n]) }`, map[string]any{"n": "v"}, readArgs{"k", &seven, []string{"m", "v"}}, 3},
	} {
		r := &reader{}
		f, err := argsOf(fieldIn(t, argsSchema, test.query), r.read)
		if err != nil {
			t.Fatal(test.query, err)
		}
		var g givenArgs
		for range 3 {
			got, err := f.value(&g, test.variables)
			if err != nil {
				t.Fatal(test.query, err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("%s: %s", test.query, diff)
			}
		}
		if r.keys != test.keys {
			t.Errorf("%s: the key was converted %d times, want %d", test.query, r.keys, test.keys)
		}
	}
}

// What cannot be read is an error, when it is compiled or when it is there.
func TestUnreadable(t *testing.T) {
	read := func(g *givenArgs) any {
		return &readArgs{Key: requiredArg(g, "key", func(v any) (string, error) {
			if v != "good" {
				return "", errors.New("not good")
			}
			return "good", nil
		})}
	}
	if _, err := argsOf(fieldIn(t, argsSchema, `{ a(key: "bad") }`), read); !errors.Is(err, errUnreadable) {
		t.Errorf("a constant: %v", err)
	}
	f, err := argsOf(fieldIn(t, argsSchema, `query ($k: String!) { a(key: $k) }`), read)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.value(&givenArgs{}, map[string]any{"k": "bad"}); !errors.Is(err, errUnreadable) {
		t.Errorf("a variable: %v", err)
	}
	if _, err := f.value(&givenArgs{}, map[string]any{"k": "good"}); err != nil {
		t.Errorf("what can be read: %v", err)
	}
}

const kinds = `
	scalar DateTime
	scalar Where
	enum Direction { ASC DESC }
	input Order { field: String! direction: Direction = ASC }
	type Query {
		document(key: ID!, asOf: DateTime, version: Int): Int
		page(where: Where, orderBy: [Order!], first: Int, after: String, last: Int, before: String, asOf: DateTime): Int
		versions(from: DateTime, to: DateTime, author: ID, fields: [String!], first: Int, after: String, last: Int, before: String): Int
		reference(asOf: DateTime): Int
		node(id: ID!): Int
		nodes(ids: [ID!]!): Int
	}`

func TestKinds(t *testing.T) {
	read := map[string]func(*givenArgs) any{
		"document": ofDocument, "page": ofPage, "versions": ofVersions,
		"reference": ofReference, "node": ofNode, "nodes": ofNodes,
	}
	at, then, one, two, text, other := driver.Instant(1), driver.Instant(2), 1, 2, "a", "b"
	variables := map[string]any{
		"t": "1970-01-01T00:00:00.000001Z", "yes": true, "bad": "down",
		"o": []any{map[string]any{"field": "f"}, map[string]any{"field": "g", "direction": "DESC"}},
	}
	for query, want := range map[string]any{
		`{ document(key: 7) }`: &documentArgs{Key: "7"},
		`query ($t: DateTime) { document(key: "k", asOf: $t, version: 2) }`: &documentArgs{Key: "k", AsOf: &at, Version: &two},
		`{ page }`: &storage.PageArgs{},
		`query ($t: DateTime, $o: [Order!]) { page(where: {n: 1}, orderBy: $o, first: 1, after: "a", last: 2, before: "b", asOf: $t) }`: &storage.PageArgs{
			Where: map[string]any{"n": int64(1)}, OrderBy: []*storage.OrderInput{{Field: "f", Direction: storage.Asc}, {Field: "g", Direction: storage.Desc}},
			First: &one, After: &text, Last: &two, Before: &other, AsOf: &at,
		},
		`{ page(orderBy: {field: "f", direction: DESC}) }`: &storage.PageArgs{OrderBy: []*storage.OrderInput{{Field: "f", Direction: storage.Desc}}},
		`query ($t: DateTime) { versions(from: $t, to: "1970-01-01T00:00:00.000002Z", author: "a", fields: ["b"], first: 1, after: "a", last: 2, before: "b") }`: &storage.VersionsArgs{
			From: &at, To: &then, Author: &text, Fields: []string{"b"}, First: &one, After: &text, Last: &two, Before: &other,
		},
		`{ reference }`: referenceArgs{},
		`{ reference(asOf: "1970-01-01T00:00:00.000002Z") }`: referenceArgs{AsOf: &then},
		`{ node(id: "a") }`:          "a",
		`{ nodes(ids: ["a", "b"]) }`: []string{"a", "b"},
		`query ($bad: DateTime) { document(key: "k", asOf: $bad) }`:                errUnreadable,
		`query ($yes: ID!) { document(key: $yes) }`:                                errUnreadable,
		`query ($bad: [Order!]) { page(orderBy: $bad) }`:                           errUnreadable,
		`query ($o: String!) { page(orderBy: [{field: $o}]) }`:                     errUnreadable,
		`query ($bad: Direction) { page(orderBy: {field: "f", direction: $bad}) }`: errUnreadable,
	} {
		f := fieldIn(t, kinds, query)
		a, err := argsOf(f, read[f.Name])
		var got any
		if err == nil {
			got, err = a.value(&givenArgs{}, variables)
		}
		if unreadable, ok := want.(error); ok {
			if !errors.Is(err, unreadable) {
				t.Errorf("%s: %v, %v", query, got, err)
			}
			continue
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", query, err, diff)
		}
	}
}
