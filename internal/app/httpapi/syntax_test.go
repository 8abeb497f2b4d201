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
		"{ # \"\r\n a(b: \"é\", c: [{d: \"\\udc00\"}])}":  {Line: 2, Column: 21},
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
		err := halfPair(document)
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
		a.wantError(t, 200, CodeBadInput, text)
		if !strings.Contains(a.text, `"locations":[{"line":1,"column":16}]`) {
			t.Errorf("no location: %s", a.text)
		}
	}
	s.query(t, document, "Accept", mediaGraphQL).wantError(t, 400, CodeBadInput, text)
	s.do(t, "GET", "/?"+url.Values{"query": {document}}.Encode(), "").wantError(t, 200, CodeBadInput, text)
	if a := s.query(t, document, "Accept", "text/event-stream"); !strings.Contains(a.text, "half of a surrogate pair") {
		t.Errorf("server-sent events: %s", a.text)
	}
	hash := fmt.Sprintf(`"extensions":{"persistedQuery":{"version":1,"sha256Hash":%q}}`, sha256Hex(document))
	encoded, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{fmt.Sprintf(`{"query":%s,%s}`, encoded, hash), `{` + hash + `}`} {
		s.post(t, body).wantError(t, 200, CodeBadInput, text)
	}
	c := s.connect(t, `{}`)
	c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"1","payload":{"query":%s}}`, encoded))
	if got := c.receive(t); !strings.Contains(got, "half of a surrogate pair") || !strings.Contains(got, CodeBadInput) {
		t.Errorf("WebSocket: %s", got)
	}
	s.query(t, `{hello(name: "a\ud83d\ude00\u{1F600}b")}`).want(t, 200, ok)
}

func TestSyntaxErrors(t *testing.T) {
	s := newServer(t, nil)
	for document, c := range map[string]struct{ code, text, place string }{
		`{hello(name: "abc)}`:         {CodeBadInput, "Unterminated string", `"line":1,"column":20`},
		`{hello(name: """abc)}`:       {CodeBadInput, "Unterminated string", `"line":1`},
		`{hello(name: "\x")}`:         {CodeBadInput, `Invalid character escape sequence: \x`, `"line":1,"column":16`},
		`{hello(name: "\u{110000}")}`: {CodeBadInput, `Invalid character escape sequence: \u{110000}`, `"line":1`},
		"{hello\x00}":                 {CodeBadInput, `invalid character "\u0000"`, `"line":1,"column":7`},
		"{\n? }":                      {CodeBadInput, `unexpected character "?"`, `"line":2,"column":1`},
		`{hello(name: 01)}`:           {CodeBadInput, `Invalid number`, `"line":1`},
		`{hello(Invalid "`:            {CodeBadInput, `Unterminated string`, `"line":1`},
		`{hello(name: ` + strings.Repeat("[", 2000) + `)}`:    {CodeTooComplex, "nests more than 1000 levels", `"line":1`},
		`{hello ! "exceeded maximum nesting depth of 1000" }`: {CodeBadInput, "", `"line":1`},
	} {
		a := s.query(t, document)
		a.wantError(t, 200, c.code, c.text)
		if !strings.Contains(a.text, c.place) || strings.Contains(a.text, "Invalid>") {
			t.Errorf("%.60s: %s, want the place %s", document, a.text, c.place)
		}
	}
}
