package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
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
