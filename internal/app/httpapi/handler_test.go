package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

const ok = `{"data":{"hello":"world"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`

func TestPost(t *testing.T) {
	s := newServer(t, nil)
	s.query(t, `{hello}`).want(t, 200, ok)
	s.post(t, `{"query":"query Q($n: String) {hello(name: $n)}","variables":{"n":"x"},"operationName":"Q","extensions":{"a":1}}`).want(t, 200, ok)
	s.post(t, `{"query":"query A {hello} query B {x: hello}","operationName":"B"}`).
		want(t, 200, `{"data":{"x":"world"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`)
	s.query(t, `mutation {change(value: 1)}`).want(t, 200, `{"data":{"change":1},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`)
}

func TestMediaTypes(t *testing.T) {
	s := newServer(t, nil)
	for _, c := range []struct{ accept, want string }{
		{"", mediaJSON},
		{"*/*", mediaJSON},
		{"application/*", mediaJSON},
		{mediaJSON, mediaJSON},
		{mediaGraphQL, mediaGraphQL},
		{"application/graphql-response+json; charset=utf-8, application/json; charset=utf-8", mediaGraphQL},
		{"application/json;q=0.5, application/graphql-response+json", mediaGraphQL},
		{"application/json, application/graphql-response+json;q=0.9", mediaJSON},
		{"application/graphql-response+json;q=x, text/html", mediaJSON},
	} {
		a := s.query(t, `{hello}`, "Accept", c.accept)
		if got, want := a.header.Get("Content-Type"), c.want+"; charset=utf-8"; got != want || a.status != 200 {
			t.Errorf("Accept %q: status %d, Content-Type %q, want %q", c.accept, a.status, got, want)
		}
		// A document that is not valid is 400 only in the newer media type.
		want := map[string]int{mediaJSON: 200, mediaGraphQL: 400}[c.want]
		for _, document := range []string{`{`, `{nothing}`, `query($id: ID!) {nodes(ids: [$id]) {id}}`} {
			s.query(t, document, "Accept", c.accept).wantError(t, want, codeBadInput, "")
		}
	}
}

func TestBadRequests(t *testing.T) {
	s := newServer(t, nil)
	deep := strings.Repeat(`[`, 200_000)
	for name, c := range map[string]struct{ body, text string }{
		"empty":                {"", "is empty"},
		"white space":          {" \n\t", "is empty"},
		"not JSON":             {`{"query": "{hello}`, "not valid JSON"},
		"text behind":          {`{"query": "{hello}"} x`, "not valid JSON"},
		"a string":             {`"{hello}"`, "must be a JSON object"},
		"null":                 {`null`, "must be a JSON object"},
		"a batch":              {`[{"query": "{hello}"}]`, "batches are not supported"},
		"deep":                 {`{"variables": {"x": ` + deep, "not valid JSON"},
		"deep and closed":      {`{"query":"{hello}","variables":{"a":` + deep + strings.Repeat("]", len(deep)) + `}}`, "not valid JSON"},
		"invalid UTF-8":        {"{\"query\": \"{hello(name: \\\"\xff\\\")}\"}", "invalid UTF-8 (at byte 26)"},
		"half a pair":          {`{"query": "{hello(name: \"\ud83d\")}"}`, "in string (at byte 26)"},
		"the other half":       {`{"query": "{hello(name: \"\udc00\")}"}`, "invalid surrogate pair"},
		"no query":             {`{}`, `no "query"`},
		"misspelt":             {`{"qurey": "{hello}"}`, `no "query"`},
		"query null":           {`{"query": null}`, `no "query"`},
		"query a number":       {`{"query": 1}`, `a member "/query" that is not a string`},
		"operation a list":     {`{"query": "{hello}", "operationName": []}`, `a member "/operationName" that is not a string`},
		"variables a string":   {`{"query": "{hello}", "variables": "x"}`, `a member "/variables" that is not an object`},
		"extensions a boolean": {`{"query": "{hello}", "extensions": false}`, `a member "/extensions" that is not an object`},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.post(t, c.body)
			a.wantError(t, 400, codeBadInput, c.text)
			if len(a.text) > 1000 {
				t.Errorf("the answer has %d bytes: it echoes the request", len(a.text))
			}
		})
	}
	s.post(t, `{"query": "{hello(name: \"\ud83c\udfc3 \\\\ \u0041\")}"}`).want(t, 200, ok)
}

func TestDocumentsThatCannotBeExecuted(t *testing.T) {
	s := newServer(t, nil)
	for name, c := range map[string]struct{ body, text string }{
		"several, none named": {`{"query":"query A {hello} query B {hello}"}`, "has 2 operations"},
		"unknown name":        {`{"query":"query A {hello}","operationName":"C"}`, `no operation named "C"`},
		"only a fragment":     {`{"query":"fragment F on Query {hello}"}`, "no operation"},
		"unknown field":       {`{"query":"{helo}"}`, "Did you mean"},
		"Int out of range":    {`{"query":"mutation($v: Int) {change(value: $v)}","variables":{"v":"x"}}`, ""},
		"missing variable":    {`{"query":"query($n: [ID!]!) {nodes(ids: $n) {id}}"}`, "must be defined"},
		"nul":                 {`{"query":"{hello\u0000}"}`, "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			s.post(t, c.body).wantError(t, 200, codeBadInput, c.text)
			s.post(t, c.body, "Accept", mediaGraphQL).wantError(t, 400, codeBadInput, c.text)
		})
	}
}

func TestGet(t *testing.T) {
	s := newServer(t, nil)
	get := func(values url.Values, header ...string) answer {
		t.Helper()
		return s.do(t, http.MethodGet, "/?"+values.Encode(), "", header...)
	}
	get(url.Values{"query": {"query($n: String) {hello(name: $n)}"}, "variables": {`{"n":"x"}`}}).want(t, 200, ok)
	get(url.Values{"query": {"mutation {change}"}}).wantError(t, 405, codeBadInput, "send it by POST")
	get(url.Values{"query": {"query A {hello} mutation B {change}"}, "operationName": {"B"}}).wantError(t, 405, codeBadInput, "send it by POST")
	get(url.Values{}).wantError(t, 400, codeBadInput, `no "query"`)
	get(url.Values{"query": {"{hello}"}, "variables": {`[1]`}}).wantError(t, 400, codeBadInput, `the parameter "variables" is a list: it must be an object such as {"key"`)
	get(url.Values{"query": {"{hello}"}, "extensions": {`[1]`}}).wantError(t, 400, codeBadInput, `the parameter "extensions" is a list: it must be an object such as {"persistedQuery"`)
	get(url.Values{"query": {"{hello}"}, "extensions": {`"x`}}).wantError(t, 400, codeBadInput, `"extensions"`)
	get(url.Values{"query": {"{hello}", "{x: hello}"}}).wantError(t, 400, codeBadInput, "given 2 times")
	get(url.Values{"query": {"{hello \xff}"}}).wantError(t, 400, codeBadInput, "UTF-8")
	s.do(t, http.MethodGet, "/?query=%zz", "").wantError(t, 400, codeBadInput, "could not be decoded")
	get(url.Values{"query": {"{"}}, "Accept", mediaGraphQL).wantError(t, 400, codeBadInput, "")
}

func TestMethodsAndContentTypes(t *testing.T) {
	s := newServer(t, nil)
	for _, method := range []string{"PUT", "DELETE", "PATCH"} {
		a := s.do(t, method, "/", "{}")
		a.wantError(t, 405, codeBadInput, "use GET or POST")
		if got := a.header.Get("Allow"); got != allowed {
			t.Errorf("%s: Allow %q", method, got)
		}
	}
	if a := s.do(t, "OPTIONS", "/", ""); a.status != 204 || a.header.Get("Allow") != allowed || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS: %+v", a)
	}
	body := `{"query":"{hello}"}`
	for _, kind := range []string{
		"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"application/graphql", "application/json; charset=latin1", "nonsense/",
	} {
		s.do(t, "POST", "/", body, "Content-Type", kind).wantError(t, 415, codeBadInput, "application/json")
	}
	for _, encoding := range []string{"gzip", "br", "GZIP, identity"} {
		s.do(t, "POST", "/", body, "Content-Type", mediaJSON, "Content-Encoding", encoding).wantError(t, 415, codeBadInput, "Content-Encoding is not supported")
	}
	s.do(t, "POST", "/", body, "Content-Type", mediaJSON, "Content-Encoding", "identity").want(t, 200, ok)
	for _, kind := range []string{"application/json; charset=utf-8", "Application/JSON", `application/json; charset="UTF-8"`} {
		s.do(t, "POST", "/", body, "Content-Type", kind).want(t, 200, ok)
	}
}

func TestPersistedQueries(t *testing.T) {
	s := newServer(t, nil)
	persisted := func(hash string) string {
		return `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"` + hash + `"}}}`
	}
	right := persisted(sha256Hex("{hello}"))
	s.post(t, `{"query":"{hello}",`+persisted(sha256Hex("{x}"))[1:]).wantError(t, 200, codeBadInput, "does not match")
	s.post(t, right).wantError(t, 400, "PERSISTED_QUERY_NOT_FOUND", "")
	s.post(t, `{"query":"{hello}",`+right[1:]).want(t, 200, ok)
	s.post(t, right).want(t, 200, ok)
	s.do(t, "GET", "/?extensions="+url.QueryEscape(`{"persistedQuery":{"version":1,"sha256Hash":"`+sha256Hex("{hello}")+`"}}`), "").want(t, 200, ok)
	for given, want := range map[string]string{
		`7`:                                `must be an object with "version": 1, a number, and "sha256Hash"`,
		`{}`:                               `must be an object with "version": 1`,
		`{"version":1}`:                    `must be an object with "version": 1`,
		`{"version":"1","sha256Hash":"x"}`: `must be an object with "version": 1`,
		`{"version":2,"sha256Hash":"x"}`:   "has the version 2; this server knows version 1 only",
	} {
		s.post(t, `{"extensions":{"persistedQuery":`+given+`}}`).wantError(t, 400, codeBadInput, want)
		c := s.connect(t, `{}`)
		c.send(t, `{"type":"subscribe","id":"1","payload":{"extensions":{"persistedQuery":`+given+`}}}`)
		if got := c.receive(t); !strings.Contains(got, `"type":"error"`) || !strings.Contains(got, `"code":"BAD_USER_INPUT"`) {
			t.Errorf("%s over a WebSocket: %s", given, got)
		}
	}
}

func TestErrorsOfFields(t *testing.T) {
	s := newServer(t, nil)
	s.query(t, `{fail}`).want(t, 200,
		`{"errors":[{"message":"something went wrong","extensions":{"code":"INTERNAL"}}],"data":{"fail":null},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`)
}

// Why a document is refused is not for the presenter: it has its code already.
func TestPresenterIsForFields(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Limits.Depth = 1
		cfg.Present = func(_ context.Context, err error) *gqlerror.Error {
			return &gqlerror.Error{Message: err.Error(), Extensions: map[string]any{"code": "PRESENTED"}}
		}
	})
	s.query(t, `{items {nodes {id}}}`).wantError(t, 200, codeTooComplex, "3 levels deep")
	s.query(t, `{nothing}`).wantError(t, 200, codeBadInput, "nothing")
	if got := s.query(t, `{fail}`).text; !strings.Contains(got, "PRESENTED") {
		t.Error(got)
	}
}

func TestPanic(t *testing.T) {
	s := newServer(t, nil)
	s.query(t, `query P{panics}`).wantError(t, 500, codeInternal, "request "+s.handler.ids.prefix)
	s.query(t, `{panics}`, "Accept", mediaEvents).wantError(t, 500, codeInternal, "request "+s.handler.ids.prefix)
	s.query(t, `{hello}`).want(t, 200, ok)
	if err := s.handler.Drain(t.Context()); err != nil {
		t.Errorf("the place of the panicking operation is lost: %v", err)
	}
	s.Close() // what was answered is written down
	var got []string
	for _, line := range s.journal.lines(t) {
		got = append(got, fmt.Sprint(line["level"], " ", line["msg"], " ", line["name"], " ", line["status"], " ", line["codes"]))
	}
	want := []string{
		"ERROR panic <nil> <nil> <nil>", "ERROR operation P 500 [INTERNAL]", "ERROR panic <nil> <nil> <nil>", "ERROR operation  500 [INTERNAL]",
		"INFO operation  200 <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestBeginFails(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Operations = &fakeOperations{err: &refusal{}}
	})
	s.query(t, `{hello}`).wantError(t, 500, codeInternal, "no instant")
}

type refusal struct{}

func (*refusal) Error() string { return "no instant" }

func TestTimeout(t *testing.T) {
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Time = 20 * time.Millisecond
		schema.fields["block"] = func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	s.query(t, `{block}`).wantError(t, 504, CodeUnavailable, "longer than this server allows")
	late := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.Time = time.Nanosecond })
	late.query(t, `{hello}`).wantError(t, 504, CodeUnavailable, "longer than this server allows")
}

func TestIdentity(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Identify = func(r *http.Request) (Identity, error) {
			if r.Header.Get("X-Actor") == "bad" {
				return Identity{}, errors.New("who are you?")
			}
			return Identity{Context: r.Context(), Actor: r.Header.Get("X-Actor")}, nil
		}
	})
	s.query(t, `query Named {hello}`, "X-Actor", "ada", "X-Request-Id", "r-1").want(t, 200, ok)
	s.query(t, `{hello}`, "X-Actor", "bad").wantError(t, 400, codeBadInput, "who are you?")
	got := s.journal.lines(t)[0]
	delete(got, "time")
	delete(got, "duration")
	if diff := cmp.Diff(map[string]any{
		"level": "INFO", "msg": "operation", "name": "Named", "type": "query", "asOf": "2026-01-02T03:04:05Z",
		"documentsRead": 7.0, "bytesRead": 70.0, "transport": "POST", "executor": "gqlgen", "actor": "ada",
		"request": "r-1", "status": 200.0,
	}, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestRequestIDs(t *testing.T) {
	s := newServer(t, nil)
	seen := map[string]bool{}
	for _, given := range []string{"", "", strings.Repeat("x", 65), "a b", "tab\t", `q"`} {
		id := s.query(t, `{hello}`, "X-Request-Id", given).header.Get("X-Request-Id")
		if seen[id] || id == given || id == "" {
			t.Errorf("X-Request-Id %q was answered with %q", given, id)
		}
		seen[id] = true
	}
	if id := s.query(t, `{hello}`, "X-Request-Id", "A-1_b.2").header.Get("X-Request-Id"); id != "A-1_b.2" {
		t.Errorf("the sender's id became %q", id)
	}
}

// counted are the values of a counter by one of its labels.
func (s *server) counted(t *testing.T, name, label string) map[string]float64 {
	t.Helper()
	families, err := s.handler.cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == label {
					found[pair.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return found
}

// What is refused before it is read is seen by the operator: it may be a page that
// tries to use somebody's browser.
func TestRefusalsAreLoggedAndCounted(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "POST", "/", `{"query":"mutation {change}"}`, "Content-Type", "text/plain", "Origin", "https://evil.example.org", "X-Request-Id", "r-1").
		wantError(t, 415, codeBadInput, "application/json")
	s.do(t, "DELETE", "/", "").wantError(t, 405, codeBadInput, "use GET or POST")
	s.post(t, `{}`, "Content-Encoding", "br").wantError(t, 415, codeBadInput, "Content-Encoding")
	if _, response, err := s.dial(t, subprotocol, http.Header{"Origin": {"https://evil.example.org"}}); err == nil || response.StatusCode != 403 {
		t.Fatal(response, err)
	} else if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	s.do(t, "GET", "/", "", "Connection", "Upgrade", "Upgrade", "h2c").wantError(t, 400, codeBadInput, "WebSocket")
	want := map[string]float64{"content-type": 1, "method": 1, "content-encoding": 1, "origin": 1, "upgrade": 1}
	if diff := cmp.Diff(want, s.counted(t, "asof_requests_refused_total", "reason")); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	lines := s.journal.lines(t)
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	first := lines[0]
	delete(first, "time")
	if diff := cmp.Diff(map[string]any{
		"level": "WARN", "msg": "request refused", "reason": "content-type", "status": 415.0, "method": "POST", "path": "/",
		"host": strings.TrimPrefix(s.URL, "http://"), "origin": "https://evil.example.org", "contentType": "text/plain", "request": "r-1",
		"error": "the Content-Type of a POST must be application/json (UTF-8)",
	}, first); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// Clients that do not wait are no failures of the server's.
func TestClientsThatLeaveAreCountedApart(t *testing.T) {
	var begun, ended chan bool
	s := newServer(t, func(_ *Config, schema *fakeSchema) { begun, ended = blocking(schema) })
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(`{"query":"{block}"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaJSON)
	go func() {
		<-begun
		leave()
	}()
	if response, err := s.Client().Do(r); err == nil {
		_ = response.Body.Close()
		t.Fatal("it was answered")
	}
	<-ended
	c := s.connect(t, `{}`)
	c.send(t, subscribeMessage("a", "{block}"))
	<-begun
	c.send(t, `{"type":"complete","id":"a"}`)
	<-ended
	for len(s.journal.lines(t)) < 2 { // both are finished, and written down
		runtime.Gosched()
	}
	if diff := cmp.Diff(map[string]float64{"CANCELLED": 2}, s.counted(t, "asof_operations_total", "code")); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"0": 1, "499": 1}, s.counted(t, "asof_operations_total", "status")); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	for _, line := range s.journal.lines(t) {
		if diff := cmp.Diff([]any{"CANCELLED"}, line["codes"]); diff != "" || line["level"] != "INFO" {
			t.Errorf("log: %v", line)
		}
	}
}

// A browser's EventSource can ask by GET only.
func TestEventsByGet(t *testing.T) {
	s := newServer(t, nil)
	get := func(values url.Values) answer {
		return s.do(t, "GET", "/?"+values.Encode(), "", "Accept", mediaEvents)
	}
	const events = "event: next\ndata: "
	got := get(url.Values{"query": {`query Q($n: String) {hello(name: $n)}`}, "operationName": {"Q"}, "variables": {`{"n": "x"}`}})
	got.want(t, 200, events+ok+"\n\nevent: complete\ndata:\n\n")
	if kind := got.header.Get("Content-Type"); kind != mediaEvents {
		t.Errorf("Content-Type %q", kind)
	}
	if line := s.journal.lines(t)[0]; line["transport"] != "SSE" || line["name"] != "Q" {
		t.Errorf("log: %v", line)
	}
	get(url.Values{"query": {`{nothing}`}}).want(t, 200, events+`{"errors":[{"message":"Cannot query field…`)
	get(url.Values{"query": {`query Q($n: String) {hello(name: $n)}`}, "variables": {`{"n": {}}`}}).want(t, 200, events+`{"errors":[{"message":…`)
	get(url.Values{"query": {`{hello}`}, "variables": {`7`}}).wantError(t, 400, codeBadInput, `the parameter "variables" must be a JSON object`)
	refused := get(url.Values{"query": {`mutation {change}`}})
	refused.wantError(t, 405, codeBadInput, "a mutation cannot be sent by GET")
	if got := refused.header.Get("Allow"); got != "POST" {
		t.Errorf("Allow %q", got)
	}
}

func TestCheckOrigin(t *testing.T) {
	for origin, want := range map[string]string{
		"https://app.example.org":      "",
		"http://localhost:5173":        "",
		"http://[::1]:3000":            "",
		"https://example.org:80":       "",
		"http://localhost:5173/":       "write http://localhost:5173",
		"http://[::1]:3000/":           "write http://[::1]:3000",
		"http://localhost:5173/app":    "write http://localhost:5173",
		"https://example.org?x":        "write https://example.org",
		"https://example.org?":         "write https://example.org",
		"https://example.org#x":        "write https://example.org",
		"https://example.org#":         "write https://example.org",
		"https://ada@example.org":      "write https://example.org",
		"https://example.org:443":      "write https://example.org",
		"http://example.org:80":        "write http://example.org",
		"http://example.org:":          "write http://example.org",
		"https://Example.org":          "write https://example.org",
		"HTTPS://example.org":          "write https://example.org",
		"https://bücher.example":       "in punycode",
		"http://localhost:080":         "a port is a number",
		"http://localhost:99999":       "a port is a number",
		"*":                            "want one origin",
		"https://*.example.org":        "want one origin",
		"https://*":                    "want one origin",
		"null":                         "want one origin",
		"":                             "want one origin",
		"localhost:5173":               "want one origin",
		"example.org":                  "want one origin",
		"ftp://example.org":            "want one origin",
		"http://:8080":                 "want one origin",
		"http://exa mple.org":          "want one origin",
		"http://localhost:5173\u0000/": "want one origin",
	} {
		switch err := CheckOrigin(origin); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", origin, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", origin, err, want)
		}
	}
}

// A page of another site cannot have a browser execute a query by GET, whatever it
// does; programs, and pages that may, can.
func TestGetFromOtherSites(t *testing.T) {
	const listed = "https://app.example.org"
	const browser = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Origins = []string{listed} })
	yes, no := http.StatusOK, http.StatusForbidden
	for _, c := range []struct {
		name   string
		status int
		header []string
	}{
		{"image", no, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}},
		{"script of another port", no, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}},
		{"fetch", no, []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example.org"}},
		{"a link in another page", no, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		{"fetch, old browser", no, []string{"User-Agent", browser, "Origin", "https://evil.example.org"}},
		{"sandboxed", no, []string{"User-Agent", browser, "Origin", "null"}},
		{"a media type that needs no preflight", no, []string{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}},
		{"image by plain HTTP to another machine", no, []string{"User-Agent", browser, "Accept", "image/avif,*/*"}},
		{"media of Safari", no, []string{"User-Agent", "AppleCoreMedia/1.0.0.21F90 (iPhone; U; CPU OS 17_5_1 like Mac OS X; en_us)"}},

		{"program", yes, []string{"User-Agent", "curl/8.14.1", "Accept", "*/*"}},
		{"program without a name", yes, []string{"User-Agent", ""}},
		{"fetch of Node", yes, []string{"User-Agent", "node", "Sec-Fetch-Mode", "cors", "Accept-Language", "*"}},
		{"address bar", yes, []string{"User-Agent", browser, "Sec-Fetch-Site", "none"}},
		{"own page", yes, []string{"User-Agent", browser, "Sec-Fetch-Site", "same-origin"}},
		{"own page, old browser", yes, []string{"User-Agent", browser, "Origin", s.URL}},
		{"listed page", yes, []string{"User-Agent", browser, "Sec-Fetch-Site", "cross-site", "Origin", listed}},
		{"listed page, old browser", yes, []string{"User-Agent", browser, "Origin", listed}},
		{"after a preflight", yes, []string{"Sec-Fetch-Site", "cross-site", "Apollo-Require-Preflight", "true"}},
		{"after a preflight", yes, []string{"Sec-Fetch-Site", "cross-site", "X-Apollo-Operation-Name", "Q"}},
		{"after a preflight", yes, []string{"User-Agent", browser, "GraphQL-Require-Preflight", "1"}},
		{"after a preflight", yes, []string{"User-Agent", browser, "Content-Type", mediaJSON}},
	} {
		for _, accept := range []string{mediaJSON, mediaEvents} {
			got := s.do(t, http.MethodGet, "/?"+url.Values{"query": {"{hello}"}}.Encode(), "", append([]string{"Accept", accept}, c.header...)...)
			switch {
			case c.status == no:
				got.wantError(t, no, CodeForbidden, "graphql-require-preflight: 1")
			case got.status != yes || !strings.Contains(got.text, `"data"`):
				t.Errorf("%s: status %d: %s", c.name, got.status, got.text)
			}
		}
	}
	if refused := s.counted(t, "asof_requests_refused_total", "reason")["origin"]; refused != 18 {
		t.Errorf("counted %v refusals, want 18", refused)
	}
}

// identified lets in who sends Authorization: good, and others to read.
func identified(refused *atomic.Pointer[Denied]) func(r *http.Request) (Identity, error) {
	return func(r *http.Request) (Identity, error) {
		denied := &Denied{http.StatusUnauthorized, CodeUnauthenticated, "credentials are needed", `Bearer realm="test"`}
		name := r.Header.Get("Authorization")
		if d := refused.Load(); d != nil && name == "good" {
			return Identity{}, d
		}
		switch name {
		case "":
			return Identity{Context: r.Context(), ReadOnly: denied}, nil
		case "bad":
			return Identity{}, denied
		}
		return Identity{Context: r.Context(), Actor: strings.TrimPrefix(name, "new "), Client: "actor " + name}, nil
	}
}

// Who may not come in is told how; who may only read writes nothing, by no transport.
func TestDenied(t *testing.T) {
	var refused atomic.Pointer[Denied]
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Identify = identified(&refused) })
	const reading, changing = `{"query":"{hello}"}`, `{"query":"mutation {change}"}`
	for _, c := range []struct {
		name, body, authorization, accept string
		status                            int
	}{
		{"good", changing, "good", "", 200},
		{"bad", reading, "bad", "", 401},
		{"bad, by server-sent events", reading, "bad", mediaEvents, 401},
		{"bad, and malformed", `{`, "bad", "", 401},
		{"nobody reads", reading, "", "", 200},
		{"nobody writes", changing, "", "", 401},
		{"nobody writes, by server-sent events", changing, "", mediaEvents, 401},
		{"nobody writes, as GraphQL", changing, "", mediaGraphQL, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.post(t, c.body, "Authorization", c.authorization, "Accept", c.accept)
			if got.status != c.status {
				t.Errorf("status %d, want %d: %s", got.status, c.status, got.text)
			}
			challenged := got.header.Get("WWW-Authenticate") == `Bearer realm="test"` && strings.Contains(got.text, CodeUnauthenticated)
			if refused := c.status == 401; challenged != refused || refused && strings.Contains(got.text, `"data"`) {
				t.Errorf("challenge %q: %s", got.header.Get("WWW-Authenticate"), got.text)
			}
		})
	}
	refused.Store(&Denied{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: "later"})
	if got := s.post(t, reading, "Authorization", "good"); got.status != 503 || got.header.Get("Retry-After") == "" || got.header.Get("WWW-Authenticate") != "" {
		t.Errorf("status %d, %v", got.status, got.header)
	}
}

// from is a connection of a client that records what is written to it.
type from struct {
	net.Conn

	client string
	said   []string
}

func (f *from) RemoteAddr() net.Addr {
	return &net.UnixAddr{Name: f.client}
}

func (f *from) Write(p []byte) (int, error) {
	f.said = append(f.said, string(p))
	return len(p), nil
}

func (f *from) Close() error {
	f.said = append(f.said, "closed")
	return nil
}

// A client has half of the connections that others leave, and all have no more than there are.
func TestConnectionsAreBounded(t *testing.T) {
	connections := make(piped, 10)
	l := BoundConnections(&http.Server{}, connections, 8*connectionBytes, func(address string) string { return address })
	come := func(clients ...string) {
		for _, client := range clients {
			connections <- &from{client: client}
		}
	}
	accept := func(clients ...string) (last net.Conn) {
		t.Helper()
		for _, client := range clients {
			var err error
			if last, err = l.Accept(); err != nil || last.RemoteAddr().String() != client {
				t.Fatalf("%v, %v; want one of %s", last, err, client)
			}
		}
		return last
	}
	const a, b, c, d = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"
	come(a, a, a, a, a, b, b, b, c)
	last := accept(a, a, a, a, b, b, c) // the fifth, and the third, are too many
	_, _ = last.Close(), last.Close()
	come(c)
	accept(c)
	refused := &from{client: d}
	connections <- refused
	_ = connections.Close()
	if c, err := l.Accept(); err == nil {
		t.Fatalf("one of %s is accepted", c.RemoteAddr())
	}
	if diff := cmp.Diff([]string{tooManyConnections, "closed"}, refused.said); diff != "" {
		t.Errorf("a refused client gets (-want +got):\n%s", diff)
	}
}

// What a header takes counts until its request was handled, and a short one is still read
// beside those of a client that has spent its share. One of many lines is refused, wherever they
// are cut, and a body of many lines is not.
func TestHeadersAreCounted(t *testing.T) {
	handling, handled := make(chan bool), make(chan bool)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			handling <- true
			<-handled
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
	}), MaxHeaderBytes: 64 << 10}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const long = "GET / HTTP/1.1\r\nHost: a\r\n"
	lines := "a: " + strings.Repeat("x", 40<<10) + "\r\n"
	l := BoundConnections(server, inner, 3*headerFactor*int64(len(lines)), func(string) string { return "one client" })
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	dial := func(text string) net.Conn {
		t.Helper()
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	status := func(c net.Conn) int {
		t.Helper()
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode
	}
	open := l.(*boundListener).open
	idle := func() {
		for open.Held() > 3*connectionBytes { // of those that are open
			runtime.Gosched()
		}
	}
	first := dial(long + lines)
	held := connectionBytes + headerFactor*int64(len(long+lines)-freeHeader)
	for open.Held() < held {
		runtime.Gosched()
	}
	// The answer is lost where the connection is reset, as not all was read that had come.
	if r, err := http.ReadResponse(bufio.NewReader(dial(long+lines)), nil); err == nil && r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second long header: %d", r.StatusCode)
	}
	for open.Held() > held { // the second is closed when it was answered
		runtime.Gosched()
	}
	if got := status(dial(long + "\r\n")); got != http.StatusOK {
		t.Errorf("a short header beside a long one: %d", got)
	}
	if _, err := first.Write([]byte("\r\n")); err != nil {
		t.Fatal(err)
	}
	if got := status(first); got != http.StatusOK {
		t.Errorf("the long header: %d", got)
	}
	idle()
	if _, err := first.Write([]byte(strings.Replace(long, "/", "/wait", 1) + lines + "\r\n")); err != nil {
		t.Fatal(err)
	}
	<-handling
	if held = open.Held(); held < headerFactor*int64(len(lines)-freeHeader) {
		t.Errorf("a long header holds %d bytes while its request is handled", held)
	}
	handled <- true
	if got := status(first); got != http.StatusOK {
		t.Errorf("the long header again: %d", got)
	}
	idle()
	short := strings.Repeat("a:b\r\n", mostLines-3) + fmt.Sprintf("Content-Length: %d\r\n\r\n", 2*mostLines) + strings.Repeat("\n", 2*mostLines)
	for range 2 {
		if _, err := first.Write([]byte(long + short)); err != nil {
			t.Fatal(err)
		}
		if got := status(first); got != http.StatusOK {
			t.Errorf("a header of %d lines with a body of more: %d", mostLines, got)
		}
	}
	if got := status(dial(long + "a:b\r\n" + short)); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of %d lines: %d", mostLines+1, got)
	}
}
