package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

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
		Metrics: prometheus.NewRegistry(), Limits: Limits{Fields: 3},
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
		`the document "empty" (): `, `the document "large" (`, `--max-fields`,
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
