package args_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/plan/args"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

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
	read := map[string]func(*args.Given) any{
		"document": args.OfDocument, "page": args.OfPage, "versions": args.OfVersions,
		"reference": args.OfReference, "node": args.OfNode, "nodes": args.OfNodes,
	}
	at, then, one, two, text, other := driver.Instant(1), driver.Instant(2), 1, 2, "a", "b"
	variables := map[string]any{
		"t": "1970-01-01T00:00:00.000001Z", "yes": true, "bad": "down",
		"o": []any{map[string]any{"field": "f"}, map[string]any{"field": "g", "direction": "DESC"}},
	}
	for query, want := range map[string]any{
		`{ document(key: 7) }`: &args.Document{Key: "7"},
		`query ($t: DateTime) { document(key: "k", asOf: $t, version: 2) }`: &args.Document{Key: "k", AsOf: &at, Version: &two},
		`{ page }`: &storage.PageArgs{},
		`query ($t: DateTime, $o: [Order!]) { page(where: {n: 1}, orderBy: $o, first: 1, after: "a", last: 2, before: "b", asOf: $t) }`: &storage.PageArgs{
			Where: map[string]any{"n": int64(1)}, OrderBy: []*storage.OrderInput{{Field: "f", Direction: storage.Asc}, {Field: "g", Direction: storage.Desc}},
			First: &one, After: &text, Last: &two, Before: &other, AsOf: &at,
		},
		`{ page(orderBy: {field: "f", direction: DESC}) }`: &storage.PageArgs{OrderBy: []*storage.OrderInput{{Field: "f", Direction: storage.Desc}}},
		`query ($t: DateTime) { versions(from: $t, to: "1970-01-01T00:00:00.000002Z", author: "a", fields: ["b"], first: 1, after: "a", last: 2, before: "b") }`: &storage.VersionsArgs{
			From: &at, To: &then, Author: &text, Fields: []string{"b"}, First: &one, After: &text, Last: &two, Before: &other,
		},
		`{ reference }`: args.Reference{},
		`{ reference(asOf: "1970-01-01T00:00:00.000002Z") }`: args.Reference{AsOf: &then},
		`{ node(id: "a") }`:          "a",
		`{ nodes(ids: ["a", "b"]) }`: []string{"a", "b"},
		`query ($bad: DateTime) { document(key: "k", asOf: $bad) }`:                args.ErrUnreadable,
		`query ($yes: ID!) { document(key: $yes) }`:                                args.ErrUnreadable,
		`query ($bad: [Order!]) { page(orderBy: $bad) }`:                           args.ErrUnreadable,
		`query ($o: String!) { page(orderBy: [{field: $o}]) }`:                     args.ErrUnreadable,
		`query ($bad: Direction) { page(orderBy: {field: "f", direction: $bad}) }`: args.ErrUnreadable,
	} {
		f := field(t, kinds, query)
		a, err := args.Of(f, read[f.Name])
		var got any
		if err == nil {
			got, err = a.Value(&args.Given{}, variables)
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
