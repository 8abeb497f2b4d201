package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

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
