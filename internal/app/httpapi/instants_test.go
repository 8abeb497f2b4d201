package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// noOperations fails the test where an operation is begun.
type noOperations struct{ t *testing.T }

func (n noOperations) Begin(ctx context.Context) (context.Context, error) {
	n.t.Error("an operation was begun that is refused")
	return ctx, nil
}

func (noOperations) Instant(context.Context) string { return "" }

// Operations that are refused read nothing, so that they have no instant and do not wait for
// the store.
func TestRefusedOperationsAreNotBegun(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Limits.Depth = 1
		cfg.Operations = noOperations{t}
	})
	for name, body := range map[string]string{
		"no query":                `{"variables":{}}`,
		"syntax":                  `{"query":"{hello"}`,
		"validation":              `{"query":"{nothing}"}`,
		"variables":               `{"query":"query ($name: String!) {hello(name: $name)}"}`,
		"limits":                  `{"query":"{items {nodes {id}}}"}`,
		"operation":               `{"query":"{hello}","operationName":"other"}`,
		"no such persisted query": `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}`,
	} {
		if got := s.post(t, body); !strings.HasPrefix(got.text, `{"errors":[{`) || strings.Contains(got.text, "asOf") {
			t.Errorf("%s: %s", name, got.text)
		}
	}
}

// The answer of an operation whose time was over has its instant.
func TestOperationsThatEndHaveTheirInstant(t *testing.T) {
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Time = 50 * time.Millisecond
		blocking(schema)
	})
	got := s.query(t, `{block}`)
	if got.status != http.StatusGatewayTimeout || !strings.HasSuffix(got.text, `"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`) {
		t.Errorf("status %d: %s", got.status, got.text)
	}
}
