package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Answers to operations that are refused before they begin tell the instant as
// well, on the transports whose answers have a place for it.
func TestRefusedOperationsTellTheInstant(t *testing.T) {
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Depth = 1
		cfg.Limits.Time = 50 * time.Millisecond
		schema.fields["block"] = func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	const instant = `"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`
	for _, test := range []struct{ name, body string }{
		{"no query", `{"variables":{}}`},
		{"syntax", `{"query":"{hello"}`},
		{"validation", `{"query":"{nothing}"}`},
		{"variables", `{"query":"query ($name: String!) {hello(name: $name)}"}`},
		{"limits", `{"query":"{items {nodes {id}}}"}`},
		{"operation", `{"query":"{hello}","operationName":"other"}`},
		{"no such persisted query", `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}`},
		{"time", `{"query":"{block}"}`},
	} {
		if got := s.post(t, test.body); !strings.HasSuffix(got.text, instant) || !strings.HasPrefix(got.text, `{"errors":[{`) {
			t.Errorf("POST, %s: %s", test.name, got.text)
		}
		if got := s.post(t, test.body, "Accept", mediaEvents); !strings.Contains(got.text, instant+"\n\n") {
			t.Errorf("SSE, %s: %s", test.name, got.text)
		}
	}
	if got := s.do(t, http.MethodGet, "/?query="+url.QueryEscape("{nothing}"), ""); !strings.HasSuffix(got.text, instant) {
		t.Errorf("GET: %s", got.text)
	}
}

// silentOperations never begin by themselves.
type silentOperations struct{ waited chan error }

func (s *silentOperations) Begin(ctx context.Context) (context.Context, error) {
	<-ctx.Done()
	s.waited <- ctx.Err()
	return ctx, ctx.Err()
}

func (s *silentOperations) Instant(context.Context) string { return "" }

// A store that does not answer does not keep the errors of a document from who
// wrote it.
func TestRefusedOperationsWithoutInstant(t *testing.T) {
	waited := make(chan error, 1)
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Operations = &silentOperations{waited}
		cfg.Limits.Time = time.Hour
	})
	s.query(t, `{nothing}`).want(t, http.StatusOK, `{"errors":[{"message":"Cannot query field \"nothing\" on type \"Query\".","locations":[{"line":1,"column":2}],"extensions":{"code":"BAD_USER_INPUT"}}]}`)
	if err := <-waited; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it waited until %v", err)
	}
	c := s.connect(t, `{}`)
	c.send(t, subscribeMessage("1", `{nothing}`))
	if got := c.receive(t); !strings.Contains(got, `"type":"error"`) || strings.Contains(got, "asOf") {
		t.Errorf("WebSocket: %s", got)
	}
	select {
	case err := <-waited:
		t.Errorf("a list of errors waited for an instant: %v", err)
	default:
	}
}
