package args_test

import (
	"errors"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/plan/args"
)

type read struct {
	Key   string
	First *int
	Names []string
}

// reader counts how often each argument is converted.
type reader struct{ keys, firsts int }

func (r *reader) read(g *args.Given) any {
	return &read{
		Key:   args.Required(g, "key", func(v any) (string, error) { r.keys++; return graphql.UnmarshalString(v) }),
		First: args.Optional(g, "first", func(v any) (int, error) { r.firsts++; return graphql.UnmarshalInt(v) }),
		Names: args.List(g, "names", graphql.UnmarshalString),
	}
}

const schema = "type Query { a(key: String!, first: Int = 7, names: [String!]): Int }"

// field is the only field of a query.
func field(t *testing.T, schemaText, query string) graphql.CollectedField {
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
		query        string
		variables    map[string]any
		want         read
		keys, firsts int // conversions in three requests, and at compilation
	}{
		{`{ a(key: "k") }`, nil, read{"k", &seven, nil}, 1, 1},
		{`{ a(key: "k", first: null, names: "n") }`, nil, read{"k", nil, []string{"n"}}, 1, 0},
		{`query ($k: String!) { a(key: $k, first: 2, names: []) }`, map[string]any{"k": "v"}, read{"v", &two, []string{}}, 3, 1},
		{`query ($n: Int) { a(key: "k", first: $n) }`, map[string]any{"n": 2}, read{"k", &two, nil}, 1, 3},
		{`query ($n: Int) { a(key: "k", first: $n) }`, map[string]any{"n": nil}, read{"k", nil, nil}, 1, 0},
		{`query ($n: Int) { a(key: "k", first: $n) }`, nil, read{"k", &seven, nil}, 1, 3},
		{`query ($n: String!) { a(key: "k", names: ["m", $n]) }`, map[string]any{"n": "v"}, read{"k", &seven, []string{"m", "v"}}, 1, 1},
	} {
		r := &reader{}
		f, err := args.Of(field(t, schema, test.query), r.read)
		if err != nil {
			t.Fatal(test.query, err)
		}
		var g args.Given
		for range 3 {
			got, err := f.Value(&g, test.variables)
			if err != nil {
				t.Fatal(test.query, err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("%s: %s", test.query, diff)
			}
		}
		if r.keys != test.keys || r.firsts != test.firsts {
			t.Errorf("%s: key was converted %d times, first %d times; want %d and %d", test.query, r.keys, r.firsts, test.keys, test.firsts)
		}
	}
}

// What cannot be read is an error, when it is compiled or when it is there.
func TestUnreadable(t *testing.T) {
	read := func(g *args.Given) any {
		return &read{Key: args.Required(g, "key", func(v any) (string, error) {
			if v != "good" {
				return "", errors.New("not good")
			}
			return "good", nil
		})}
	}
	if _, err := args.Of(field(t, schema, `{ a(key: "bad") }`), read); !errors.Is(err, args.ErrUnreadable) {
		t.Errorf("a constant: %v", err)
	}
	f, err := args.Of(field(t, schema, `query ($k: String!) { a(key: $k) }`), read)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Value(&args.Given{}, map[string]any{"k": "bad"}); !errors.Is(err, args.ErrUnreadable) {
		t.Errorf("a variable: %v", err)
	}
	if _, err := f.Value(&args.Given{}, map[string]any{"k": "good"}); err != nil {
		t.Errorf("what can be read: %v", err)
	}
}
