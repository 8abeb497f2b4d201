package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// fakeSchema executes operations by calling one function for each root field.
type fakeSchema struct {
	schema *ast.Schema
	fields map[string]func(ctx context.Context) (any, error)
}

const fakeSDL = `
type Query {
  hello(name: String): String
  block: String
  fail: String
  panics: String
  items(first: Int, after: String, last: Int): ItemConnection!
  nodes(ids: [ID!]!): [Item]!
}
type Subscription { ticks(name: String, since: Since): String  sure: String! }
input Since { tick: Int }
type Mutation { change(value: Int): Int changeItem: Item }
type ItemConnection { edges: [ItemEdge!]! nodes: [Item!]! }
type ItemEdge { node: Item! }
type Item { id: ID!  name: String  items: [Item!]!  more(first: Int): ItemConnection! }
`

func newFakeSchema(t testing.TB) *fakeSchema {
	t.Helper()
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "fake.graphqls", Input: fakeSDL})
	if err != nil {
		t.Fatal(err)
	}
	return &fakeSchema{schema: schema, fields: map[string]func(context.Context) (any, error){
		"__typename": func(context.Context) (any, error) { return "Query", nil },
		"hello":      func(context.Context) (any, error) { return "world", nil },
		"__schema":   func(context.Context) (any, error) { return nil, nil },
		"change":     func(context.Context) (any, error) { return 1, nil },
		"items":      func(context.Context) (any, error) { return map[string]any{}, nil },
		"fail": func(context.Context) (any, error) {
			return nil, &gqlerror.Error{
				Message: "something went wrong", Err: fmt.Errorf("the disk is on fire"),
				Extensions: map[string]any{"code": codeInternal},
			}
		},
		"panics": func(context.Context) (any, error) { panic("oh no") },
	}}
}

func (f *fakeSchema) Schema() *ast.Schema { return f.schema }

func (f *fakeSchema) Complexity(context.Context, string, string, int, map[string]any) (int, bool) {
	return 0, false
}

func (f *fakeSchema) Exec(ctx context.Context) graphql.ResponseHandler {
	oc := graphql.GetOperationContext(ctx)
	done := false
	return func(ctx context.Context) *graphql.Response {
		if done {
			return nil
		}
		done = true
		data := map[string]any{}
		for _, field := range graphql.CollectFields(oc, oc.Operation.SelectionSet, []string{"Query", "Mutation", "Subscription"}) {
			value, err := f.fields[field.Name](ctx)
			if err != nil {
				graphql.AddError(ctx, err)
			}
			data[field.Alias] = value
		}
		raw, err := json.Marshal(data)
		if err != nil {
			graphql.AddError(ctx, err)
		}
		return &graphql.Response{Data: raw}
	}
}

// fakeOperations begins every operation at the same instant.
type fakeOperations struct{ err error }

type begunKey struct{}

func (f *fakeOperations) Begin(ctx context.Context) (context.Context, error) {
	return context.WithValue(ctx, begunKey{}, true), errors.Join(f.err, CountRead(ctx, 7, 70, 70))
}

func (f *fakeOperations) Instant(ctx context.Context) string {
	if ctx.Value(begunKey{}) == nil {
		return ""
	}
	return "2026-01-02T03:04:05Z"
}

// journal keeps what was logged.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) lines(t testing.TB) []map[string]any {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []map[string]any
	for line := range strings.Lines(j.buf.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

type server struct {
	*httptest.Server
	handler *Handler
	schema  *fakeSchema
	journal *journal
}

// newServer serves the fake schema; change may alter the configuration.
func newServer(t testing.TB, change func(*Config, *fakeSchema)) *server {
	t.Helper()
	s := newHandler(t, change)
	s.Server = httptest.NewServer(s.handler)
	t.Cleanup(s.Close)
	return s
}

// newHandler is newServer without a connection, such as for a test in a time of its own.
func newHandler(t testing.TB, change func(*Config, *fakeSchema)) *server {
	t.Helper()
	s := &server{schema: newFakeSchema(t), journal: new(journal)}
	cfg := Config{
		Schema:        s.schema,
		Operations:    &fakeOperations{},
		Client:        func(*http.Request) string { return "somebody" },
		Introspection: true,
		Logger:        slog.New(slog.NewJSONHandler(s.journal, nil)),
		Now:           time.Now,
		Metrics:       prometheus.NewRegistry(),
		Identify:      func(r *http.Request) (Identity, error) { return Identity{Context: r.Context()}, nil },
		Present:       presentPlainly,
		Recover:       graphql.DefaultRecover,
		Weight:        noWeight,
		Pinned:        func(*graphql.OperationContext) bool { return false },
		CPU:           func() time.Duration { return 0 },
		Limits:        defaultLimits(),
	}
	if change != nil {
		change(&cfg, s.schema)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	var err error
	if s.handler, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitSockets returns when no WebSocket is open.
func (s *server) awaitSockets() {
	_ = s.handler.open.Acquire(context.Background(), math.MaxInt64)
	s.handler.open.Release(math.MaxInt64)
}

// answer is what came back over HTTP.
type answer struct {
	status int
	header http.Header
	text   string
}

func (s *server) do(t testing.TB, method, path, body string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// post sends JSON.
func (s *server) post(t testing.TB, body string, header ...string) answer {
	t.Helper()
	return s.do(t, http.MethodPost, "/", body, append([]string{"Content-Type", mediaJSON}, header...)...)
}

// query sends a GraphQL document.
func (s *server) query(t testing.TB, document string, header ...string) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": document})
	if err != nil {
		t.Fatal(err)
	}
	return s.post(t, string(body), header...)
}

// want compares status and body: the body whole, or where it ends in "…" only
// its beginning.
func (a answer) want(t testing.TB, status int, text string) {
	t.Helper()
	got := a.text
	if start, ok := strings.CutSuffix(text, "…"); ok && strings.HasPrefix(got, start) {
		got = text
	}
	if diff := cmp.Diff(text, got); a.status != status || diff != "" {
		t.Errorf("status %d, want %d; body (-want +got):\n%s", a.status, status, diff)
	}
}

// wantError wants one error with a code and a text.
func (a answer) wantError(t testing.TB, status int, code, text string) {
	t.Helper()
	var body struct {
		Errors []struct {
			Message    string
			Extensions struct{ Code string }
		}
		Data json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.text), &body); err != nil {
		t.Fatalf("status %d, body %q: %v", a.status, a.text, err)
	}
	if a.status != status || len(body.Errors) != 1 || body.Errors[0].Extensions.Code != code ||
		!strings.Contains(body.Errors[0].Message, text) || body.Data != nil {
		t.Errorf("status %d, body %s\nwant status %d, no data, one error %s: …%s…", a.status, a.text, status, code, text)
	}
}

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func noWeight(_, _, _ string) int { return 0 }

// presentPlainly shows an error's own text.
func presentPlainly(ctx context.Context, err error) *gqlerror.Error {
	if known, ok := errors.AsType[*gqlerror.Error](err); ok {
		return known
	}
	shown := gqlerror.WrapPath(graphql.GetPath(ctx), err)
	shown.Extensions = map[string]any{"code": codeInternal}
	return shown
}

// defaultLimits are those of the program.
func defaultLimits() Limits {
	return Limits{
		Body:       1 << 20,
		Query:      100 << 10,
		Tokens:     10_000,
		Depth:      15,
		PageSize:   500,
		Cost:       50_000,
		Read:       32 << 20,
		Answer:     8 << 20,
		Time:       30 * time.Second,
		Execution:  600 * time.Millisecond,
		Concurrent: 64,
		Slow:       max(runtime.GOMAXPROCS(0)/2, 1),
		SlowAfter:  10 * time.Millisecond,
		Wait:       time.Second,
		Grace:      10 * time.Second,
		Rate:       256 << 10,
		Memory:     1 << 30,
	}
}

// withDefaults replaces zero values by the defaults.
func (l Limits) withDefaults() Limits {
	own, defaults := reflect.ValueOf(&l).Elem(), reflect.ValueOf(defaultLimits())
	for i := range own.NumField() {
		if own.Field(i).IsZero() {
			own.Field(i).Set(defaults.Field(i))
		}
	}
	if l.Fast == 0 {
		l.Fast = l.Concurrent
	}
	return l
}
