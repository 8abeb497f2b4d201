package codegen_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/codegen/codegentest"
)

// Every kind of field, in every shape, compiles and keeps its values on the way
// into the store and back.
func everyKind(t *testing.T, url string) {
	t.Helper()
	tests := []struct{ name, query, want string }{
		{
			"all scalars given",
			`mutation { createProduct(input: {key: "full", data: {
				title: "a \"b\" é 💡", sku: 17, stock: -2147483648, weight: 1.5e-3, active: false, soldSince: "2024-03-01T14:30:00.25+02:00",
				released: "2024-02-29", price: "19.90", extra: {b: [1, 2.50, "x", null], a: {}}, plan: PRO, plans: [LEGACY],
				words: ["x", ""], maybeWords: ["x", null], ids: [1, "two"], ints: [3, 1, 2], floats: [0.5, null], flags: [true, false],
				moments: ["1969-12-31T23:59:59.999999Z"], days: ["0001-01-01"], amounts: ["1e-9999", "-0.10"], blobs: [{a: 1}, null, "x"]
			}}) { ... on CreateProductSuccess { version changed product { ...all } } } }`,
			`{"createProduct": {"version": 1, "changed": true, "product": {
				"id": "Product:full", "title": "a \"b\" é 💡", "sku": "17", "stock": -2147483648, "weight": 0.0015, "active": false,
				"soldSince": "2024-03-01T12:30:00.25Z", "released": "2024-02-29", "price": "19.90",
				"extra": {"b": [1, 2.5, "x", null], "a": {}}, "plan": "PRO", "plans": ["LEGACY"], "words": ["x", ""], "maybeWords": ["x", null],
				"ids": ["1", "two"], "ints": [3, 1, 2], "floats": [0.5, null], "flags": [true, false], "moments": ["1969-12-31T23:59:59.999999Z"],
				"days": ["0001-01-01"], "amounts": ["1e-9999", "-0.10"], "blobs": [{"a": 1}, null, "x"]}}}`,
		},
		{
			"defaults and missing values",
			`mutation { createProduct(input: {key: "bare", data: {title: "t", sku: "s"}}) {
				... on CreateProductSuccess { product { ...all } } } }`,
			`{"createProduct": {"product": {
				"id": "Product:bare", "title": "t", "sku": "s", "stock": 0, "weight": null, "active": true, "soldSince": "2020-01-01T00:00:00Z",
				"released": null, "price": "0.00", "extra": {"a": [1, "x", null]}, "plan": "BASIC", "plans": ["BASIC", "PRO"], "words": [],
				"maybeWords": [], "ids": [], "ints": [], "floats": [], "flags": [], "moments": [], "days": [], "amounts": [], "blobs": []}}}`,
		},
		{
			"filters of every kind",
			`{ products(where: {and: [{title: {containsFold: "É"}}, {sku: {eq: 17}}, {stock: {lt: 0}}, {weight: {gte: 0.0015}}, {active: {eq: false}},
				{soldSince: {eq: "2024-03-01T12:30:00.250Z"}}, {released: {in: ["2024-02-29"]}}, {price: {eq: "19.9"}}, {extra: {isNull: false}}, {plan: {eq: PRO}},
				{plans: {has: LEGACY}}, {words: {hasAll: ["x"]}}, {maybeWords: {has: "x"}}, {ids: {hasAny: [1]}}, {ints: {hasNone: [4]}}, {floats: {has: 0.5}},
				{flags: {has: true}}, {moments: {has: "1969-12-31T23:59:59.999999Z"}}, {days: {has: "0001-01-01"}}, {amounts: {has: "-0.1"}}, {blobs: {isEmpty: false}}]},
				orderBy: [{field: price, direction: DESC}, {field: plan}, {field: active}]) { totalCount nodes { key } } }`,
			`{"products": {"totalCount": 1, "nodes": [{"key": "full"}]}}`,
		},
		{
			"nested objects and lists of them",
			`mutation { createOrder(input: {key: "o", data: {lines: [{product: "p", taxes: [{name: "VAT", rate: "0.19"}, null]}],
				billTo: {street: ["1", "2"], city: {name: "B", country: DE}}}}) {
				... on CreateOrderSuccess { order { lines { product quantity taxes { name rate } } shipTo { street } billTo { street city { name country } } } } } }`,
			`{"createOrder": {"order": {"lines": [{"product": "p", "quantity": 1, "taxes": [{"name": "VAT", "rate": "0.19"}, null]}],
				"shipTo": null, "billTo": {"street": ["1", "2"], "city": {"name": "B", "country": "DE"}}}}}`,
		},
		{
			"a patch of a nested object",
			`mutation { updateOrder(input: {key: "o", expectedVersion: 1, patch: {billTo: {city: {country: FR}}}}) {
				... on UpdateOrderSuccess { changes { path op oldValue newValue } order { billTo { street city { name country } } } } } }`,
			`{"updateOrder": {"changes": [{"path": "/billTo/city/country", "op": "REPLACE", "oldValue": "DE", "newValue": "FR"}],
				"order": {"billTo": {"street": ["1", "2"], "city": {"name": "B", "country": "FR"}}}}}`,
		},
		{
			"filters inside nested objects",
			`{ orders(where: {billTo: {city: {country: {eq: FR}}}, lines: {some: {taxes: {some: {rate: {gt: "0.1"}}}}}}) { nodes { key } } }`,
			`{"orders": {"nodes": [{"key": "o"}]}}`,
		},
		{
			"references to the same and other types",
			`mutation { a: createTeam(input: {key: "t", data: {name: "T", members: ["p", "nobody"]}}) { __typename }
				b: createPerson(input: {key: "p", data: {name: "P", boss: "p", friends: ["p"], team: "t"}}) {
					... on CreatePersonSuccess { person { bossKey friendKeys teamKey boss { name } friends { name } team { name members { name } memberKeys news { name } newsKeys } } } } }`,
			`{"a": {"__typename": "CreateTeamSuccess"}, "b": {"person": {"bossKey": "p", "friendKeys": ["p"], "teamKey": "t", "boss": {"name": "P"},
				"friends": [{"name": "P"}], "team": {"name": "T", "members": [{"name": "P"}, null], "memberKeys": ["p", "nobody"], "news": [], "newsKeys": []}}}}`,
		},
		{
			"what is deprecated, where it is written, compared and sorted by",
			`{ input: __type(name: "SizeInput") { inputFields(includeDeprecated: true) { name isDeprecated deprecationReason } }
				where: __type(name: "SizeWhere") { inputFields(includeDeprecated: true) { name isDeprecated deprecationReason } }
				order: __type(name: "PartOrderField") { enumValues { name } }
				all: __type(name: "PartOrderField") { enumValues(includeDeprecated: true) { name isDeprecated deprecationReason } } }`,
			`{"input": {"inputFields": [
					{"name": "height", "isDeprecated": false, "deprecationReason": null},
					{"name": "width", "isDeprecated": false, "deprecationReason": null},
					{"name": "depth", "isDeprecated": true, "deprecationReason": "They are all flat."}]},
				"where": {"inputFields": [
					{"name": "and", "isDeprecated": false, "deprecationReason": null},
					{"name": "or", "isDeprecated": false, "deprecationReason": null},
					{"name": "not", "isDeprecated": false, "deprecationReason": null},
					{"name": "height", "isDeprecated": false, "deprecationReason": null},
					{"name": "width", "isDeprecated": true, "deprecationReason": "They are all square."},
					{"name": "depth", "isDeprecated": true, "deprecationReason": "They are all flat."}]},
				"order": {"enumValues": [{"name": "key"}, {"name": "version"}, {"name": "recordedAt"}, {"name": "name"}]},
				"all": {"enumValues": [
					{"name": "key", "isDeprecated": false, "deprecationReason": null},
					{"name": "version", "isDeprecated": false, "deprecationReason": null},
					{"name": "recordedAt", "isDeprecated": false, "deprecationReason": null},
					{"name": "name", "isDeprecated": false, "deprecationReason": null},
					{"name": "code", "isDeprecated": true, "deprecationReason": "Use name."},
					{"name": "colour", "isDeprecated": true, "deprecationReason": "Nobody paints parts."},
					{"name": "grade", "isDeprecated": true, "deprecationReason": "No longer supported"}]}}`,
		},
		{
			"what is deprecated still works",
			`mutation { createPart(input: {key: "part", data: {name: "N", code: "C", colour: "red", size: {height: 1, width: 2, depth: 3}}}) {
				... on CreatePartSuccess { part { code colour grade size { depth } } } } }`,
			`{"createPart": {"part": {"code": "C", "colour": "red", "grade": "B", "size": {"depth": 3}}}}`,
		},
		{
			"absent references",
			`mutation { createPerson(input: {key: "q", data: {name: "Q"}}) { ... on CreatePersonSuccess { person { bossKey friendKeys teamKey boss { name } friends { name } } } } }`,
			`{"createPerson": {"person": {"bossKey": null, "friendKeys": [], "teamKey": null, "boss": null, "friends": []}}}`,
		},
	}
	const all = ` fragment all on Product { id title sku stock weight active soldSince released price extra plan plans words maybeWords ids ints floats
		flags moments days amounts blobs }`
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			query := test.query
			if strings.Contains(query, "...all") {
				query += all
			}
			if diff := cmp.Diff(decoded(t, test.want), codegentest.Query(t, url, query)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// decoded is the data that a JSON text is.
func decoded(t *testing.T, text string) (data map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}
	return data
}
