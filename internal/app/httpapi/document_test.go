package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
)

// conflicts is a document with so many fields of one response name, each with
// arguments of its own, in so many inline fragments within each other.
func conflicts(fields, fragments int) string {
	var b strings.Builder
	b.WriteString("{" + strings.Repeat("...{", fragments))
	for i := range fields {
		fmt.Fprintf(&b, `hello(name:"%d")`, i)
	}
	return b.String() + strings.Repeat("}", fragments+1)
}

// What it takes to refuse fields that conflict grows with their number, not with that
// of their pairs, nor with the fragments around them.
func TestConflictsCostWhatTheyAreLong(t *testing.T) {
	s := newFakeSchema(t)
	exec := newExecutor(&Config{Schema: s, Weight: noWeight, Recover: graphql.DefaultRecover, Introspection: true, Limits: defaultLimits()}, presentPlainly)
	allocations := func(document string) float64 {
		return testing.AllocsPerRun(1, func() {
			_, errs := exec.read(t.Context(), &operation{limits: &exec.Limits}, &graphql.RawParams{Query: document})
			if !strings.Contains(errs.Error(), `Fields "hello" conflict because they have differing arguments`) {
				t.Fatalf("%.300v", errs)
			}
		})
	}
	one, twice, nested := allocations(conflicts(50, 5)), allocations(conflicts(100, 5)), allocations(conflicts(50, 30))
	if twice > 3*one || nested > 3*one {
		t.Errorf("%.0f allocations; for twice the fields %.0f, for more fragments %.0f", one, twice, nested)
	}
}

// A document that is not valid is not kept, by its text or its hash, and evicts none
// that is.
func TestInvalidDocumentsAreNotKept(t *testing.T) {
	s := newServer(t, nil)
	send := func(query string, hash string) answer {
		return s.post(t, fmt.Sprintf(`{"query":%q,"extensions":{"persistedQuery":{"version":1,"sha256Hash":%q}}}`, query, hash))
	}
	const valid = `{hello}`
	send(valid, sha256Hex(valid)).want(t, 200, ok)
	for i := range 1_010 {
		for _, invalid := range []string{fmt.Sprintf(`{hello%d}`, i), fmt.Sprintf(`{hello # %d`, i)} {
			if a := send(invalid, sha256Hex(invalid)); !strings.Contains(a.text, codeBadInput) {
				t.Fatal(a.text)
			}
		}
	}
	send("", sha256Hex(`{hello1}`)).wantError(t, 400, codeNotPersisted, "")
	send("", sha256Hex(valid)).want(t, 200, ok)
	if n := s.handler.exec.documents.known.Len(); n != 2 {
		t.Errorf("%d documents are kept, want one, by its text and its hash", n)
	}
}

// The cache of documents counts what they take, whatever they are made of.
func TestDocumentsTakeWhatIsCounted(t *testing.T) {
	schema := worstSchema(t)
	limits := defaultLimits()
	for name, text := range map[string]string{
		"fields":    `{` + strings.Repeat("id ", 9_900) + `}`,
		"values":    `{list(of: [` + strings.Repeat("1 ", 9_900) + `])}`,
		"objects":   `{find(by: {and: [` + strings.Repeat("{} ", 4_900) + `]}) {id}}`,
		"keys":      `{any(of: {` + repeat(3_000, "k%d:1 ") + `})}`,
		"arguments": `{` + strings.Repeat("node(id:1){id}", 1_090) + `}`,
		"variables": `query(` + repeat(1_600, "$v%d:Int ") + `) {list(of: [` + repeat(1_600, "$v%d ") + `])}`,
		"comments":  `{id` + strings.Repeat("#\n", 9_900) + `}`,
		"fragments": `{...F0}` + chain(300, "F", "Query", func(i int) string { return fmt.Sprintf("...F%d", i+1) }),
		"a text":    `{hello(name: "` + strings.Repeat("x", 90_000) + `")}`,
	} {
		d := newDocuments(&Config{Schema: schema, Limits: limits, Introspection: true})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		doc, list := d.read(t.Context(), text)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if list != nil {
			t.Fatalf("%s: %v", name, list)
		}
		counted := -d.known.Bytes()
		d.keep(text, doc)
		counted += d.known.Bytes()
		if held := int(after.HeapAlloc) - int(before.HeapAlloc); held > counted {
			t.Errorf("%s: %d tokens take %d bytes, and count as %d", name, doc.tokens, held, counted)
		} else {
			t.Logf("%s: %d tokens take %d bytes, and count as %d", name, doc.tokens, held, counted)
		}
	}
}

// The check of a document ends with the time of its operation, and what it found before
// is not lost when its steps are used up.
func TestCheckingEnds(t *testing.T) {
	schema := worstSchema(t)
	limits := defaultLimits()
	v := newValidation(schema.schema, &limits)
	check := func(ctx context.Context, text string) gqlerror.List {
		doc, _, _, err := parse(text, limits.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		return v.check(ctx, doc, true)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expensive := worst["fragments that spread the next"](64 << 10)
	if list := check(t.Context(), expensive); len(list) != 1 || codeOf(list[0]) != codeTooComplex || !strings.Contains(list[0].Message, "takes more steps") {
		t.Errorf("%v", list)
	}
	if list := check(ended, expensive); len(list) != 1 || codeOf(list[0]) != CodeUnavailable {
		t.Errorf("%v", list)
	}
	if list := check(t.Context(), strings.Replace(expensive, "{...F0}", "{...F0 nothing}", 1)); len(list) != 1 || !strings.Contains(list[0].Message, `Cannot query field "nothing"`) {
		t.Errorf("%v", list)
	}
	if list := check(t.Context(), worst["fields unknown"](64<<10)); len(list) != mostInvalid {
		t.Errorf("%d errors", len(list))
	}
	var seconds atomic.Int64
	late := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Now = func() time.Time { return time.Unix(seconds.Add(1), 0) } // whenever it is looked at
		cfg.Limits.Time = 50 * time.Second
	})
	late.query(t, `{hello}`).want(t, 200, ok)
	late.query(t, expensive).wantError(t, 504, CodeUnavailable, "the request took longer than this server allows")
	func() {
		defer func() {
			if recover() != any("a rule fails") {
				t.Error("another panic than the budget's is hidden")
			}
		}()
		new(budget).run(func() { panic("a rule fails") })
	}()
}

func TestHalfPairs(t *testing.T) {
	for document, want := range map[string]*gqlerror.Location{
		`{a(b: "x\ud800y")}`:                              {Line: 1, Column: 8},
		`{a(b: "\udbff")}`:                                {Line: 1, Column: 8},
		`{a(b: "\uDE00\uD83D")}`:                          {Line: 1, Column: 8},
		`{a(b: "\ud83d\ud83d\ude00")}`:                    {Line: 1, Column: 8},
		`{a(b: "\ud83d\u{1F600}")}`:                       {Line: 1, Column: 8},
		`{a(b: "\ud83d\\ude00")}`:                         {Line: 1, Column: 8},
		`{a(b: "\\\ud800")}`:                              {Line: 1, Column: 8},
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
	const document, text = `{hello(name: "a\ud800b")}`, `half of a surrogate pair`
	for range 2 { // the second time it would come from a cache
		a := s.query(t, document)
		a.wantError(t, 200, codeBadInput, text)
		if !strings.Contains(a.text, `"locations":[{"line":1,"column":15}]`) {
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
	s.query(t, `{hello(name: "a\ud83d\ude00\u{1F600}\\ud800	�\"b")}`).want(t, 200, ok)
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
		"not given":      {object{}, `variable "$key" of type "ID!": must be defined`},
		"null":           {object{"key": nil}, `variable "$key" of type "ID!": cannot be null`},
		"unknown field":  {object{"w": object{"stras": 1}}, `variable "$w".stras of type "Where": unknown field`},
		"in a list":      {object{"w": object{"stars": object{"gte": 1}, "and": []any{object{"stars": object{"gt": 1}}}}}, `variable "$w".and[0].stars.gt of type "Where": unknown field`},
		"null in a list": {object{"k": []any{"a", nil}}, `variable "$k"[1] of type "[ID!]": cannot be null`},
		"a boolean":      {object{"w": object{"stars": object{"gte": true}}}, `variable "$w".stars.gte of type "Where": this is not a valid Int`},
		"a fraction":     {object{"key": "a", "n": json.Number("1.5")}, `variable "$n" of type "Int": this is not a valid Int`},
		"too large":      {object{"key": "a", "n": json.Number("-99999999999999999999")}, `variable "$n" of type "Int": this is not a valid Int`},
		"no boolean":     {object{"key": "a", "b": json.Number("1")}, `variable "$b" of type "Boolean": this is not a valid Boolean`},
		"a list":         {object{"w": []any{}}, `variable "$w" of type "Where": this is not a valid Where`},
		"no such value":  {object{"key": "a", "s": "TINY"}, `variable "$s" of type "Size": TINY is not a valid Size`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := validator.VariableValues(schema, query.Operations[0], c.variables)
			given, ok := errors.AsType[*gqlerror.Error](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			got := variableError(query.Operations[0], given)
			if diff := cmp.Diff(c.want, got.Message); diff != "" {
				t.Error(diff)
			}
			if len(got.Path) != 0 || len(got.Locations) != 1 {
				t.Errorf("path %v, locations %v; want no path and one location", got.Path, got.Locations)
			}
		})
	}
	other := gqlerror.Errorf("something else")
	if got := variableError(query.Operations[0], other); got != other {
		t.Errorf("another error was changed to %v", got)
	}
}

func TestPlainLists(t *testing.T) {
	value := map[string]any{
		"null": nil, "number": json.Number("1"), "list": []any{"a", []string{"b"}},
		"typed":  []string{"a", "b"},
		"nested": map[string]any{"keep": true, "maps": []map[string]any{{"ids": []json.Number{"1"}}}},
	}
	want := map[string]any{
		"null": nil, "number": json.Number("1"), "list": []any{"a", []any{"b"}},
		"typed":  []any{"a", "b"},
		"nested": map[string]any{"keep": true, "maps": []any{map[string]any{"ids": []any{json.Number("1")}}}},
	}
	if diff := cmp.Diff(want, plainLists(value)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadTrusted(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`{"0a1b":"query A {hello}","c":"{hello}"}`:    {"0a1b": "query A {hello}", "c": "{hello}"},
		`{"format":"{hello}","version":"{a: hello}"}`: {"format": "{hello}", "version": "{a: hello}"},
		`{"format":"apollo-persisted-query-manifest","version":1,"operations":[
			{"id":"0a","name":"A","type":"query","body":"query A {hello}"},{"id":"0a","body":"query A {hello}"}]}`: {"0a": "query A {hello}"},
	} {
		if got, err := ReadTrusted([]byte(text)); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		``:                          "want a JSON object",
		`["{hello}"]`:               "want a JSON object",
		`{"a":"{hello}","a":"{b}"}`: `duplicate object member name "a"`,
		`{"a":{"body":"{hello}"}}`:  `the value of "a" is not a string`,
		`{}`:                        "there are no documents",
		`{"format":"apollo-persisted-query-manifest","version":1,"operations":[]}`:                                            "there are no documents",
		`{"format":"apollo-persisted-query-manifest","version":2,"operations":[]}`:                                            "the manifest has the version 2",
		`{"format":"apollo-persisted-query-manifest","version":1,"operations":[{"id":"a","body":"b"},{"id":"a","body":"c"}]}`: `two documents have the id "a"`,
		`{"format":"apollo-persisted-query-manifest","version":1,"operations":{}}`:                                            "reading the manifest",
	} {
		if _, err := ReadTrusted([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Where documents are trusted, they are executed however a client names them, and no others are,
// on no transport.
func TestTrustedDocuments(t *testing.T) {
	const document = `query A($n: String) {hello(name: $n)}`
	sha := sha256Hex(document)
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Trusted = map[string]string{"made-up": document, "write": `mutation {change}`}
	})
	for _, body := range []string{
		`{"documentId":"made-up"}`, `{"id":"made-up","variables":{"n":"x"}}`, `{"documentId":"sha256:` + sha + `"}`, `{"documentId":"` + sha + `"}`,
		`{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"made-up"}}}`, `{"query":"` + document + `"}`,
		`{"query":"` + document + `","extensions":{"persistedQuery":{"version":1,"sha256Hash":"made-up"}}}`,
	} {
		for range 2 {
			s.post(t, body).want(t, 200, ok)
		}
		c := s.connect(t, `{}`)
		c.send(t, `{"type":"subscribe","id":"1","payload":`+body+`}`)
		if got := c.receive(t); !strings.Contains(got, `"data":{"hello":"world"}`) {
			t.Errorf("%s over a WebSocket: %s", body, got)
		}
	}
	s.do(t, "GET", "/?documentId=made-up&variables="+url.QueryEscape(`{"n":"x"}`), "").want(t, 200, ok)
	s.do(t, "GET", "/?documentId=write", "").wantError(t, 405, codeBadInput, "send it by POST")
	s.post(t, `{"documentId":"write"}`).want(t, 200, `{"data":{"change":1}…`)
	s.post(t, `{"documentId":"made-up","variables":{"n":["x"]}}`).wantError(t, 200, codeBadInput, "n")
	s.post(t, `{}`).wantError(t, 400, codeBadInput, `no "query"`)
	for _, body := range []string{
		`{"documentId":"other"}`, `{"documentId":"` + sha256Hex("{hello}") + `"}`, `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"other"}}}`,
	} {
		s.post(t, body).wantError(t, 400, CodeForbidden, "--trusted-documents")
	}
	for _, query := range []string{`{hello}`, document + " ", `{__schema {queryType {name}}}`, `{__typename}`, `{`, `mutation {change}#`} {
		body := fmt.Sprintf(`{"query":%q,"extensions":{"persistedQuery":{"version":1,"sha256Hash":%q}}}`, query, sha256Hex(query))
		for range 2 { // it is not remembered
			s.post(t, body).wantError(t, 200, CodeForbidden, "--trusted-documents")
		}
		s.post(t, body, "Accept", mediaGraphQL).wantError(t, 400, CodeForbidden, "--trusted-documents")
		s.do(t, "GET", "/?query="+url.QueryEscape(query), "").wantError(t, 200, CodeForbidden, "--trusted-documents")
		c := s.connect(t, `{}`)
		c.send(t, `{"type":"subscribe","id":"1","payload":`+body+`}`)
		if got := c.receive(t); !strings.Contains(got, `"type":"error"`) || !strings.Contains(got, CodeForbidden) {
			t.Errorf("%s over a WebSocket: %s", query, got)
		}
	}
}

// Trusted documents that are not valid, or beyond a limit, are all named at the start.
func TestTrustedDocumentsAreValid(t *testing.T) {
	_, err := New(Config{
		Schema: newFakeSchema(t), Operations: &fakeOperations{}, Client: func(*http.Request) string { return "" }, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Metrics: prometheus.NewRegistry(), Weight: noWeight, Limits: Limits{Tokens: 8}.withDefaults(),
		Trusted: map[string]string{
			"good": `{hello}`, "unknown": "query Unknown {\n nothing\n}", "broken": `{hello`, "empty": ``, "large": `{a: hello b: hello c: hello d: hello}`,
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for _, want := range []string{
		`the document "unknown" (query Unknown { nothing }): `, `Cannot query field "nothing"`, `the document "broken" ({hello): `,
		`the document "empty" (): `, `the document "large" (`, `--max-tokens`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "good") || len(lines) > 8 {
		t.Errorf("%v", err)
	}
}

// Without a list, an id names what was sent before with its hash.
func TestDocumentIDs(t *testing.T) {
	s := newServer(t, nil)
	hash := sha256Hex("{hello}")
	s.post(t, `{"documentId":"sha256:`+hash+`"}`).wantError(t, 400, codeNotPersisted, "PersistedQueryNotFound")
	s.post(t, `{"query":"{hello}","extensions":{"persistedQuery":{"version":1,"sha256Hash":"`+hash+`"}}}`).want(t, 200, ok)
	s.post(t, `{"documentId":"sha256:`+hash+`"}`).want(t, 200, ok)
	s.do(t, "GET", "/?documentId="+hash, "").want(t, 200, ok)
	s.do(t, "GET", "/?documentId=a&documentId=b", "").wantError(t, 400, codeBadInput, "given 2 times")
	s.post(t, `{"documentId":"unknown","query":"{hello}"}`).want(t, 200, ok)
	s.post(t, `{"documentId":7}`).wantError(t, 400, codeBadInput, `a member "/documentId" that is not a string`)
}
