package httpapi

import (
	"context"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// An answer that is too long is one error, on every transport; the longest that
// is not is sent.
func TestAnswerLimit(t *testing.T) {
	const data = `{"hello":"world"}`
	long := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.Answer = len(data) })
	long.query(t, `{hello}`).want(t, 200, ok)
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Answer = len(data) - 1
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			graphql.AddErrorf(ctx, "another error")
			return "world", nil
		}
		schema.fields["change"] = func(context.Context) (any, error) { return 1_000_000, nil }
	})
	const text = "longer than 16 bytes, the limit of this server: ask for fewer"
	s.query(t, `{hello}`).wantError(t, 200, CodeTooComplex, text)
	s.query(t, `{hello}`, "Accept", mediaGraphQL).wantError(t, 400, CodeTooComplex, text)
	s.query(t, `mutation {change}`).wantError(t, 200, CodeTooComplex, "the mutation was executed")
	s.do(t, "GET", "/?query={hello}", "").wantError(t, 200, CodeTooComplex, text)
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"{hello}"}}`)
	for name, got := range map[string]string{"SSE": s.query(t, `{hello}`, "Accept", mediaEvents).text, "WebSocket": c.receive(t)} {
		if !strings.Contains(got, text) || !strings.Contains(got, CodeTooComplex) || strings.Contains(got, "data\":") || strings.Contains(got, "another error") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if line := s.journal.lines(t)[0]; line["errors"] != 1.0 || !strings.Contains(line["error"].(string), text) {
		t.Errorf("log: %v", line)
	}
}

// An answer lists no more errors than a client can use, and says that there are
// others, which nobody has looked at.
func TestErrorsAreBounded(t *testing.T) {
	presented, failures := 0, mostErrors
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Present = func(ctx context.Context, err error) *gqlerror.Error {
			presented++
			return presentPlainly(ctx, err)
		}
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			for range failures {
				graphql.AddErrorf(ctx, "an error")
			}
			return "world", nil
		}
	})
	for range 2 {
		for _, text := range []string{s.query(t, `{hello}`).text, s.query(t, `{hello}`, "Accept", mediaEvents).text} {
			listed, more := strings.Count(text, `"an error"`), strings.Count(text, moreErrors)
			if listed != mostErrors || (more == 1) != (failures > mostErrors) || !strings.Contains(text, `{"hello":"world"}`) {
				t.Errorf("of %d errors %d are listed, and %d times that there are more", failures, listed, more)
			}
		}
		failures = 3 * mostErrors
	}
	if presented != 4*mostErrors {
		t.Errorf("%d errors were made for four answers", presented)
	}
}
