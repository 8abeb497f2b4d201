package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/99designs/gqlgen/graphql"
)

func TestBodyLimit(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.Body = 100 })
	exactly := `{"query":"{hello}","variables":{"a":"` + strings.Repeat("x", 60) + `"}}`
	if len(exactly) != 100 {
		t.Fatalf("the test's body has %d bytes", len(exactly))
	}
	s.post(t, exactly).want(t, 200, ok)
	s.post(t, exactly+" ").wantError(t, 413, codeBadInput, "larger than 100 bytes")

	// A body of unknown length is not read to its end: this one has none.
	endless := io.MultiReader(strings.NewReader(`{"query":"`), &endlessReader{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, endless)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaJSON)
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != 413 {
		t.Errorf("status %d", response.StatusCode)
	}
}

type endlessReader struct{}

func (*endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestBodyThatBreaksOff(t *testing.T) {
	s := newServer(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL,
		io.MultiReader(strings.NewReader(`{"query":`), iotest.ErrReader(io.ErrClosedPipe)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaJSON)
	if response, err := s.Client().Do(r); err == nil {
		_ = response.Body.Close()
		t.Errorf("status %d", response.StatusCode)
	}
	s.query(t, `{hello}`).want(t, 200, ok)
}

func TestShapeLimits(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Limits = Limits{Query: 5000, Tokens: 600, Depth: 4}
	})
	nested := func(n int) string {
		return "{nodes(ids: []) " + strings.Repeat("{items ", n-2) + "{id}" + strings.Repeat("}", n-1)
	}
	for name, c := range map[string]struct{ document, text string }{
		"bytes":            {`{hello(name: "` + strings.Repeat("x", 5000) + `")}`, "at most 5000"},
		"tokens":           {`{hello` + strings.Repeat(` @skip(if: false)`, 100) + `}`, "600 tokens"},
		"depth":            {nested(5), "5 levels deep; at most 4"},
		"great depth":      {nested(100), "100 levels deep; at most 4"},
		"depth by spreads": {`{nodes(ids: []) {...F}} fragment F on Item {items {...G}} fragment G on Item {items {items {id}}}`, "5 levels deep"},
	} {
		t.Run(name, func(t *testing.T) {
			s.query(t, c.document).wantError(t, 200, codeTooComplex, c.text)
			s.query(t, c.document, "Accept", mediaGraphQL).wantError(t, 400, codeTooComplex, c.text)
		})
	}
	s.query(t, `{__schema {types {fields {type {ofType {ofType {ofType {name}}}}}}}}`).want(t, 200, "…")
}

func TestCost(t *testing.T) {
	s := newFakeSchema(t)
	exec := newExecutor(&Config{Schema: s, Weight: noWeight, Recover: graphql.DefaultRecover, Introspection: true, Limits: Limits{Cost: 1 << 30, PageSize: 500}.withDefaults()}, presentPlainly)
	for _, c := range []struct {
		document  string
		variables map[string]any
		want      int
	}{
		{`{hello}`, nil, 1},
		{`{items {nodes {id}}}`, nil, 1 + 20*(1+1)},
		{`{items(first: 3) {nodes {id name}}}`, nil, 1 + 3*(1+2)},
		{`{items(first: 3, last: 7) {edges {node {id name}}}}`, nil, 1 + 7*(1+1+2)},
		{`{items(first: null) {nodes {id}}}`, nil, 1 + 20*2},
		{`query($n: Int) {items(first: $n) {nodes {id}}}`, map[string]any{"n": int64(4)}, 1 + 4*2},
		{`query($n: Int = 6) {items(first: $n) {nodes {id}}}`, nil, 1 + 6*2},
		{`{nodes(ids: ["a", "b", "c"]) {id}}`, nil, 1 + 3},
		{`query($ids: [ID!]!) {nodes(ids: $ids) {id}}`, map[string]any{"ids": []any{"a", "b"}}, 1 + 2},
		{`{items(first: 2) {nodes {items {id}}}}`, nil, 1 + 2*(1+(1+5*1))},
		{`{items(first: 2) {nodes {more(first: 10) {nodes {id}}}}}`, nil, 1 + 2*(1+(1+10*2))},
		{`{items(first: 2) {...F}} fragment F on ItemConnection {nodes {id}}`, nil, 1 + 2*2},
		{`{items(first: 2) {... on ItemConnection {nodes {id}}}}`, nil, 1 + 2*2},
		{`{__schema {types {name fields {name}}}}`, nil, 4},
	} {
		t.Run(c.document, func(t *testing.T) {
			got, errs := costOf(t, exec, c.document, c.variables)
			if errs != "" || got != c.want {
				t.Errorf("cost %d, want %d; %s", got, c.want, errs)
			}
		})
	}
	for document, text := range map[string]string{
		`{items(first: 501) {nodes {id}}}`:                                                       "first: 501",
		`{items(last: 99999999999999999999) {nodes {id}}}`:                                       "too large",
		`query($n: Int = 600) {x: items(first: $n) {nodes {id}}}`:                                "first: 600",
		`{nodes(ids: []) {more(first: 1000000) {nodes {id}}}}`:                                   "first: 1000000",
		`{items {...F}} fragment F on ItemConnection {nodes {m: more(first: 502) {nodes {id}}}}`: "first: 502",
	} {
		if _, got := costOf(t, exec, document, nil); !strings.Contains(got, text) {
			t.Errorf("%s: %q", document, got)
		}
	}
}

// What a document took to be read counts for what its operation has in memory, but never for more
// than half of that.
func TestDocumentCountsAsMemory(t *testing.T) {
	limits := Limits{Cost: 1 << 30, Tokens: 10_000, Read: 4 << 20, Answer: 2 << 20}.withDefaults()
	exec := newExecutor(&Config{Schema: newFakeSchema(t), Weight: noWeight, Recover: graphql.DefaultRecover, Introspection: true, Limits: limits}, presentPlainly)
	for n, want := range map[int]int64{100: 100 << 10, 5000: 1 << 20} {
		op := &operation{limits: &exec.Limits}
		if _, errs := exec.read(t.Context(), op, &graphql.RawParams{Query: "{" + strings.Repeat("__typename ", n-2) + "}"}); errs != nil {
			t.Fatal(errs)
		}
		if got := op.kept.Load(); got != want {
			t.Errorf("%d tokens count as %d bytes, want %d", n, got, want)
		}
	}
}

// costOf is the cost of a document, or the error by which it is refused.
func costOf(t *testing.T, exec *executor, document string, variables map[string]any) (int, string) {
	t.Helper()
	oc, errs := exec.read(t.Context(), &operation{limits: &exec.Limits}, &graphql.RawParams{Query: document, Variables: variables})
	if errs != nil {
		return 0, errs.Error()
	}
	limits := defaultLimits()
	w := costWalk{limits: &limits, variables: oc.Variables}
	return w.set(oc.Operation.SelectionSet, listFactor).cost, ""
}

// What an operation costs follows from its variables, each time.
func TestCostDependsOnVariables(t *testing.T) {
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Cost = 41
		schema.fields["nodes"] = schema.fields["items"]
	})
	many := `["` + strings.Repeat(`a", "`, 41) + `"]`
	for document, c := range map[string]struct{ cheap, refused, code string }{
		`query($n: Int) {items(first: $n) {nodes {id}}}`:                            {"1", "21", codeTooComplex},
		`query($n: Int) {items(last: $n) {nodes {id}}}`:                             {"1", "501", codeBadInput},
		`query($n: Int) {...F} fragment F on Query {items(first: $n) {nodes {id}}}`: {"1", "21", codeTooComplex},
		`query($n: [ID!]!) {nodes(ids: $n) {id}}`:                                   {"[]", many, codeTooComplex},
		`query($n: Boolean = true) {hello @skip(if: $n)}`:                           {"false", "null", codeBadInput},
		`query($n: ID!) {nodes(ids: [$n]) {id}}`:                                    {`"a"`, "", ""},
		`query($n: String) {hello(name: $n)}`:                                       {`"a"`, "", ""},
	} {
		text := func(n string) string {
			return `{"query": ` + strconv.Quote(document) + `, "variables": {"n": ` + n + `}}`
		}
		s.post(t, text(c.cheap)).want(t, 200, `{"data":{…`)
		if c.refused != "" {
			s.post(t, text(c.refused)).wantError(t, 200, c.code, "")
		}
	}
	// Operations of one document have costs of their own.
	both := `{"query": "query A($n: Int) {items(first: $n) {nodes {id}}} query B {hello}", "operationName": "%s", "variables": {"n": 21}}`
	s.post(t, fmt.Sprintf(both, "B")).want(t, 200, ok)
	s.post(t, fmt.Sprintf(both, "A")).wantError(t, 200, codeTooComplex, "")
}

func TestCostLimit(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.Cost = 41 })
	s.query(t, `{items {nodes {id}}}`).want(t, 200, `{"data":…`)
	s.query(t, `{items {nodes {id}} hello}`).wantError(t, 200, codeTooComplex, "may return 42 fields; at most 41")
	s.query(t, `{items(first: 501) {nodes {id}}}`).wantError(t, 200, codeBadInput, "largest page of this server, 500 (--max-page)")
	s.query(t, `{items(last: 99999999999) {nodes {id}}}`).wantError(t, 200, codeBadInput, "last: 99999999999 is more than the largest page")
	s.post(t, `{"query":"query($n: Int) {items(first: $n) {nodes {id}}}","variables":{"n":99999999999}}`).
		wantError(t, 200, codeBadInput, "first: 99999999999 is more than the largest page")
	s.post(t, `{"query":"query($n: Int) {items(first: $n) {nodes {id}}}","variables":{"n":-99999999999}}`).want(t, 200, `{"data":…`)
	// Nested pages that would overflow an integer.
	document := `{items(first: 500) {nodes {` + strings.Repeat(`more(first: 500) {nodes {`, 6) + `id` + strings.Repeat(`}}`, 6) + `}}}`
	s.query(t, document).wantError(t, 200, codeTooComplex, "may return")
}

// Fragments that spread each other twice double the answer with each; neither
// checking nor refusing them may take that long (2^60 steps would never end).
func TestFragmentBomb(t *testing.T) {
	s := newServer(t, nil)
	var b strings.Builder
	b.WriteString(`{nodes(ids: ["a"]) {...F0}}`)
	for i := range 60 {
		fmt.Fprintf(&b, " fragment F%d on Item {...F%d ...F%d}", i, i+1, i+1)
	}
	b.WriteString(` fragment F60 on Item {id}`)
	s.query(t, b.String()).wantError(t, 200, codeTooComplex, "may return")
	// They are more fields than an integer can count.
	b.Reset()
	b.WriteString(`{...F0}`)
	for i := range 64 {
		fmt.Fprintf(&b, " fragment F%d on Query {...F%d ...F%d}", i, i+1, i+1)
	}
	b.WriteString(` fragment F64 on Query {hello}`)
	s.query(t, b.String()).wantError(t, 200, codeTooComplex, "the operation may return more than 10^18 fields")
}

func TestConcurrencyLimit(t *testing.T) {
	entered, release := make(chan bool), make(chan bool)
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Concurrent = 2
		cfg.Limits.Wait = 10 * time.Millisecond
		schema.fields["block"] = func(context.Context) (any, error) {
			entered <- true
			<-release
			return "done", nil
		}
	})
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			s.query(t, `{block}`).want(t, 200, `{"data":{"block":"done"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`)
		})
		<-entered
	}
	a := s.query(t, `{hello}`)
	a.wantError(t, 503, CodeUnavailable, "busy")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	// Draining waits for both, and refuses what comes meanwhile.
	drained := make(chan error)
	go func() { drained <- s.handler.Drain(context.Background()) }()
	close(release)
	wait.Wait()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	s.query(t, `{hello}`).wantError(t, 503, CodeUnavailable, "shutting down")
}

// Clients that do not read what they asked for keep no place: only the memory of their
// answers, and not for ever.
func TestClientsThatDoNotRead(t *testing.T) {
	const places = 2
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			entered := make(chan bool)
			s := newServer(t, func(cfg *Config, schema *fakeSchema) {
				cfg.Limits.Concurrent = places
				cfg.Limits.Wait = time.Hour // for the answers before to be made, however slow the machine
				cfg.Limits.Memory = 1 << 30
				schema.fields["block"] = func(context.Context) (any, error) {
					entered <- true
					return strings.Repeat("x", 7<<20), nil
				}
			})
			var stalled []net.Conn
			for range places + 1 {
				c, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				stalled = append(stalled, c)
				const body = `{"query":"{block}"}`
				if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", accept, len(body), body); err != nil {
					t.Fatal(err)
				}
				select {
				case <-entered:
				case <-t.Context().Done():
				}
			}
			s.query(t, `{hello}`).want(t, http.StatusOK, `{"data":{"hello":"world"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`)
			if held := s.handler.memory.Held(); held < 7<<20-freeMemory {
				t.Fatalf("%d bytes are held for answers that are not read", held)
			}
			for _, c := range stalled {
				_ = c.Close()
			}
			if err := s.handler.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDrainIsBounded(t *testing.T) {
	entered := make(chan bool)
	s := newServer(t, func(_ *Config, schema *fakeSchema) {
		schema.fields["block"] = func(ctx context.Context) (any, error) {
			entered <- true
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/?query={block}", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		if response, err := s.Client().Do(r); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-entered
	now, stop := context.WithCancel(t.Context())
	stop()
	if err := s.handler.Drain(now); err == nil {
		t.Error("it did not wait for the operation")
	}
	cancel()
	<-done
}

// One document does not fill the cache.
func TestCacheKeepsNoneThatIsLarge(t *testing.T) {
	d := newDocuments(&Config{Schema: newFakeSchema(t)})
	d.keep("a", &document{text: strings.Repeat("x", documentBytes/4)})
	d.keep("b", &document{text: strings.Repeat("x", documentBytes/4+1)})
	if d.get("a") == nil || d.get("b") != nil {
		t.Errorf("one of a quarter is kept: %t, a larger one: %t", d.get("a") != nil, d.get("b") != nil)
	}
}

// A condition that is null is refused wherever it is, also below introspection.
func TestConditionIsNull(t *testing.T) {
	s := newServer(t, nil)
	for name, c := range map[string]struct{ document, text string }{
		"root":            {`query($b: Boolean = true) {hello @include(if: $b)}`, `"$b" cannot be null: it is a condition of @include`},
		"below":           {`query($b: Boolean = true) {nodes(ids: []) {id @skip(if: $b)}}`, `a condition of @skip`},
		"inline fragment": {`query($b: Boolean = true) {... @skip(if: $b) {hello}}`, `a condition of @skip`},
		"spread":          {`query($b: Boolean = true) {...F @skip(if: $b)} fragment F on Query {hello}`, `a condition of @skip`},
		"in a fragment":   {`query($b: Boolean = true) {...F ...F} fragment F on Query {hello @skip(if: $b)}`, `a condition of @skip`},
		"introspection":   {`query($b: Boolean = true) {__schema {types {name @skip(if: $b)}}}`, `a condition of @skip`},
		"the second":      {`query($a: Boolean! = true, $b: Boolean = true) {hello @skip(if: $a) @include(if: $b)}`, `a condition of @include`},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"query": "` + c.document + `", "variables": {"b": null}}`
			s.post(t, body).wantError(t, 200, codeBadInput, c.text)
			s.post(t, body, "Accept", mediaGraphQL).wantError(t, 400, codeBadInput, "")
		})
	}
	s.post(t, `{"query": "query($b: Boolean = true) {hello @include(if: $b)}"}`).want(t, 200, ok)
	s.post(t, `{"query": "query($b: Boolean = true, $n: String) {hello(name: $n) @include(if: $b)}", "variables": {"n": null}}`).want(t, 200, ok)
	s.post(t, `{"query": "query($b: Boolean = false) {hello ... @defer(if: $b) {hello}}", "variables": {"b": null}}`).want(t, 200, ok)
}
