package httpapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
)

func TestHalfPairs(t *testing.T) {
	for document, want := range map[string]*gqlerror.Location{
		`{a(b: "x\ud800y")}`:                              {Line: 1, Column: 9},
		`{a(b: "\udbff")}`:                                {Line: 1, Column: 8},
		`{a(b: "\uDE00\uD83D")}`:                          {Line: 1, Column: 8},
		`{a(b: "\ud83d\ud83d\ude00")}`:                    {Line: 1, Column: 8},
		`{a(b: "\ud83d\u{1F600}")}`:                       {Line: 1, Column: 8},
		`{a(b: "\ud83d\\ude00")}`:                         {Line: 1, Column: 8},
		`{a(b: "\\\ud800")}`:                              {Line: 1, Column: 10},
		"{ # \"\n a(b: \"é\", c: [{d: \"\\udc00\"}])}":    {Line: 2, Column: 21},
		`query($x: String = "\ud800") {a}`:                {Line: 1, Column: 21},
		`{a @include(if: "\ud800")}`:                      {Line: 1, Column: 18},
		`{a(b: """ "\""" """ c: "\ud800")}`:               {Line: 1, Column: 25},
		`{a(b: "", c: "\ud800")}`:                         {Line: 1, Column: 15},
		`{a(b: "\ud83d\ude00 \u{1F600} \u0041 \\ud800")}`: nil,
		`{a(b: """\ud800 \""" \ud800""")} # "\ud800"`:     nil,
		`{a(b: "# \" \"\"\" \u0022")} # \ud800`:           nil,
		`{a}`:                                             nil,
	} {
		if _, err := parser.ParseQuery(&ast.Source{Input: document}); err != nil {
			t.Fatalf("%s: %v", document, err)
		}
		_, _, _, err := parse(document, 100)
		var got *gqlerror.Location
		if err != nil && len(err.Locations) == 1 {
			got = &err.Locations[0]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", document, diff)
		}
	}
}

// No way to send a document takes half a pair, and none remembers one.
func TestHalfPairsOnEveryWay(t *testing.T) {
	s := newServer(t, nil)
	const document, text = `{hello(name: "a\ud800b")}`, `half of a surrogate pair, \ud800`
	for range 2 { // the second time it would come from a cache
		a := s.query(t, document)
		a.wantError(t, 200, codeBadInput, text)
		if !strings.Contains(a.text, `"locations":[{"line":1,"column":16}]`) {
			t.Errorf("no location: %s", a.text)
		}
	}
	s.query(t, document, "Accept", mediaGraphQL).wantError(t, 400, codeBadInput, text)
	s.do(t, "GET", "/?"+url.Values{"query": {document}}.Encode(), "").wantError(t, 200, codeBadInput, text)
	if a := s.query(t, document, "Accept", "text/event-stream"); !strings.Contains(a.text, "half of a surrogate pair") {
		t.Errorf("server-sent events: %s", a.text)
	}
	hash := fmt.Sprintf(`"extensions":{"persistedQuery":{"version":1,"sha256Hash":%q}}`, sha256Hex(document))
	encoded, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	s.post(t, fmt.Sprintf(`{"query":%s,%s}`, encoded, hash)).wantError(t, 200, codeBadInput, text)
	s.post(t, `{`+hash+`}`).wantError(t, 400, codeNotPersisted, "")
	c := s.connect(t, `{}`)
	c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"1","payload":{"query":%s}}`, encoded))
	if got := c.receive(t); !strings.Contains(got, "half of a surrogate pair") || !strings.Contains(got, codeBadInput) {
		t.Errorf("WebSocket: %s", got)
	}
	s.query(t, `{hello(name: "a\ud83d\ude00\u{1F600}b")}`).want(t, 200, ok)
}

func TestSyntaxErrors(t *testing.T) {
	s := newServer(t, nil)
	for document, c := range map[string]struct{ code, text, place string }{
		`{hello(name: "abc)}`:         {codeBadInput, "Unterminated string", `"line":1,"column":20`},
		`{hello(name: """abc)}`:       {codeBadInput, "Unterminated string", `"line":1`},
		`{hello(name: "\x")}`:         {codeBadInput, `Invalid character escape sequence: \x`, `"line":1,"column":16`},
		`{hello(name: "\u{110000}")}`: {codeBadInput, `Invalid character escape sequence: \u{110000}`, `"line":1`},
		"{hello\x00}":                 {codeBadInput, `invalid character "\u0000"`, `"line":1,"column":7`},
		"{\n? }":                      {codeBadInput, `unexpected character "?"`, `"line":2,"column":1`},
		`{hello(name: 01)}`:           {codeBadInput, `Invalid number`, `"line":1`},
		`{hello(Invalid "`:            {codeBadInput, `Unterminated string`, `"line":1`},
		`{hello(name: ` + strings.Repeat("[", 2000) + `)}`:    {codeTooComplex, "nests more than 1000 levels", `"line":1`},
		`{hello ! "exceeded maximum nesting depth of 1000" }`: {codeBadInput, "", `"line":1`},
	} {
		a := s.query(t, document)
		a.wantError(t, 200, c.code, c.text)
		if !strings.Contains(a.text, c.place) || strings.Contains(a.text, "Invalid>") {
			t.Errorf("%.60s: %s, want the place %s", document, a.text, c.place)
		}
	}
}

// What a client wrote at length is not repeated at length, nor an error twice.
func TestErrorsAreShort(t *testing.T) {
	s := newServer(t, nil)
	digits := strings.Repeat("9", 50_000)
	for name, c := range map[string]struct{ document, code, text string }{
		"an integer":          {`{items(first: ` + digits + `) {nodes {id}}}`, codeBadInput, "the number " + digits[:100] + "… is too large"},
		"a large float":       {`{items(first: 1e999999999) {nodes {id}}}`, codeBadInput, "the number 1e999999999 is too large"},
		"a float":             {`{items(first: 1e99) {nodes {id}}}`, codeBadInput, "non-integer value: 1e99"},
		"below 64 bits":       {`{items(first: -9223372036854775809) {nodes {id}}}`, codeBadInput, "the number -9223372036854775809 is too large"},
		"64 bits":             {`{items(first: 9223372036854775807) {nodes {id}}}`, codeBadInput, "first: 9223372036854775807 is more than the largest page"},
		"a number for a text": {`{hello(name: 1.` + digits + `)}`, codeBadInput, "String cannot represent a non string value: 1.999"},
		"a name":              {`{` + strings.Repeat("a", 50_000) + `}`, codeBadInput, `aaa" on type "Query".`},
		"a directive":         {`{hello @a` + strings.Repeat("é", 3000) + `}`, codeBadInput, ""},
		"introspection": {
			`{__schema {types {fields {type {fields {type {fields {name}}}}}}}}`, codeTooComplex, "the limit of introspection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.query(t, c.document)
			a.wantError(t, 200, c.code, c.text)
			if len(a.text) > 1000 {
				t.Errorf("the answer has %d bytes", len(a.text))
			}
		})
	}
	s.query(t, `{hello(name: "`+digits+` 1e9999") items(first: 19) {nodes {id}}} # `+digits).want(t, 200, `{"data":…`)
	a := s.query(t, `{helo hell}`)
	if strings.Count(a.text, `"message"`) != 2 {
		t.Errorf("two errors were wanted: %s", a.text)
	}
}
