package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

const secretSDL = `
type Query { quokka(wombat: Wallaby, numbat: Int!, kookaburra: Cassowary, emus: [ID!]): Zebra gnus: [Gnu!] }
type Mutation { dodo(auk: Wallaby!): Zebra! }
type Zebra { okapi: Int tapir(lemur: Int!): Gnu }
interface Gnu { ibex: Int }
type Kudu implements Gnu { ibex: Int eland: Zebra }
type Oryx implements Gnu { ibex: Int eland: Int! }
input Wallaby { possum: Int! bandicoot: Bilby koala: [Wallaby!] cassowary: Cassowary }
input Bilby { quoll: Int! }
enum Cassowary { OSTRICH RHEA }
`

// Where introspection is off, no error tells a name of the schema that the client has
// not sent.
func TestErrorsTellNoNames(t *testing.T) {
	schema, err := gqlparser.LoadSchema(&ast.Source{Input: secretSDL})
	if err != nil {
		t.Fatal(err)
	}
	secrets := slices.Collect(maps.Keys(newRedactor(schema).names))
	if len(secrets) < 30 {
		t.Fatalf("%d names", len(secrets))
	}
	requests := []string{ // and the rest of the request
		`{quoka}`, `{quokka}`, `{gnus}`, `{gnus {ibx}}`, `{gnus {eland}}`, `{quokka(numbatt: 1) {okapi}}`, `{quokka(numbat: "x") {okapi}}`, `{quokka(numbat: RHEB) {okapi}}`,
		`{quokka(numbat: 1) {okapii tapir {ibex}}}`, `{quokka(numbat: 1) {tapir(lemu: 1) {ibex}}}`, `{quokka(numbat: 1) {okapi {x}}}`, `{quokka(numbat: 1, kookaburra: RHEE) {okapi}}`,
		`{quokka(numbat: 1, kookaburra: "RHEA") {okapi}}`, `{quokka(numbat: 1, kookaburra: 3) {okapi}}`, `{quokka(numbat: 1, wombat: {}) {okapi}}`, `{quokka(numbat: 1, wombat: {posum: 1}) {okapi}}`,
		`{quokka(numbat: 1, wombat: {possum: 1, bandicoot: {}}) {okapi}}`, `{quokka(numbat: 1, wombat: [[1]]) {okapi}}`, `{quokka(numbat: 1, wombat: {koala: [{x: "\"", possum: null}]}) {okapi}}`,
		`{...F} fragment F on Zebr {okapi}`, `{...F} fragment F on Zebra {okapi}`, `{... on Zebr {okapi}}`, `{gnus {... on Zebra {okapi}}}`, `query ($v: Cassowar) {quokka(numbat: 1, kookaburra: $v) {okapi}}`,
		`query ($v: Int) {quokka(numbat: $v) {okapi}}`, `query ($v: String) {quokka(numbat: 1, wombat: $v) {okapi}}`, `{gnus {... on Kudu {eland {okapi}} ... on Oryx {eland}}}`, `{a: gnus {ibex} a: quokka(numbat: 1) {okapi}}`,
		`mutation {dodo {okapi}}`, `subscription {dodo}`, `{quokka(numbat: 1) @skipp {okapi}}`, `{quokka(numbat: 1) @skip {okapi}}`, `{` + strings.Repeat("x", 10_000) + `}`,
		`{quokka(numbat: 1, wombat: {possum: "` + strings.Repeat("x ", 10_000) + `"}) {okapi}}`,
	}
	for _, variables := range []string{
		`{}`, `{"w":null}`, `{"w":{}}`, `{"w":1}`, `{"w":{"posum":1}}`, `{"w":{"possum":"x"}}`, `{"w":{"possum":1,"bandicoot":{}}}`, `{"w":{"possum":1,"bandicoot":{"quol":1}}}`,
		`{"w":{"possum":1,"koala":[{"possum":1,"bandicoot":null,"koala":[{}]}]}}`, `{"w":{"possum":1,"cassowary":"RHEE"}}`, `{"w":{"possum":1},"c":"OSTRICHH"}`, `{"w":{"possum":1},"c":3}`, `{"w":{"possum":1},"c":{}}`,
		`{"w":{"possum":1,"koala":[[1]]}}`, `{"w":{"possum":1},"e":[null]}`,
	} {
		requests = append(requests, `query ($w: Wallaby!, $c: Cassowary, $e: [ID!]) {quokka(numbat: 1, wombat: $w, kookaburra: $c, emus: $e) {okapi}}`+"\n"+variables)
	}
	s := newServer(t, func(cfg *Config, fake *fakeSchema) {
		cfg.Introspection = false
		fake.schema = schema
		cfg.Present = func(ctx context.Context, err error) *gqlerror.Error {
			shown := presentPlainly(ctx, err)
			code, _, _ := strings.Cut(shown.Message, ":")
			shown.Extensions = map[string]any{"code": code}
			return shown
		}
		fake.fields["quokka"] = func(ctx context.Context) (any, error) {
			for _, code := range []string{codeBadInput, codeTooComplex, CodeForbidden} {
				graphql.AddErrorf(graphql.WithFieldContext(ctx, &graphql.FieldContext{}), `%s: Cassowary cannot be "rhea"; it is one of OSTRICH, RHEA, or "okapi", "tapir" of .possum`, code)
			}
			return nil, nil
		}
	})
	for _, request := range append(requests, `{quokka(numbat: 1) {okapi}}`) {
		query, variables, _ := strings.Cut(request, "\n")
		body, err := json.Marshal(map[string]any{"query": query, "variables": json.RawMessage(cmp.Or(variables, "{}"))})
		if err != nil {
			t.Fatal(err)
		}
		got := s.post(t, string(body)).text
		if !strings.Contains(got, `"message"`) || strings.Contains(strings.ToLower(got), "did you mean") {
			t.Errorf("%s: %s", request, got)
		}
		for _, name := range secrets {
			if hasWord(got, name) && !hasWord(request, name) {
				t.Errorf("%.200s tells %s: %s", request, name, got)
			}
		}
	}
	if got := s.query(t, `{quokka {okapi}}`).text; !strings.Contains(got, `Field \"quokka\" argument \"…\" of type \"Int!\" is required`) {
		t.Errorf("what the client sent, or what all servers have, is missing: %s", got)
	}
}
