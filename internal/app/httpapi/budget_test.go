package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
)

// byHeader names clients by a header of the test's.
func byHeader(r *http.Request) string { return r.Header.Get("X-Client") }

// upload sends a request up to the given part of its body, and leaves it there.
func (s *server) upload(t *testing.T, client, body string, length int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nX-Client: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", client, length, body); err != nil {
		t.Fatal(err)
	}
	return c
}

// Bodies that are not complete hold memory: who sends more of them than there is room for
// is refused, and others are not.
func TestBodiesTakeMemory(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Limits.Memory, cfg.Limits.Grace = 6<<20, time.Hour
		cfg.Limits.Wait = time.Millisecond
		cfg.Client = byHeader
	})
	const length = 900 << 10
	part := `{"query":"` + strings.Repeat(" ", length-100)
	first := s.upload(t, "a", part, length)
	second := s.upload(t, "a", part, length)
	for s.handler.memory.Held() < 3*length/2 {
		runtime.Gosched()
	}
	a := s.post(t, `{"query":"{hello}","variables":{"x":"`+strings.Repeat("x", length)+`"}}`, "X-Client", "a")
	a.wantError(t, http.StatusServiceUnavailable, CodeUnavailable, "--max-memory")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.post(t, `{"query":"{hello}"}`, "X-Client", "a").want(t, http.StatusOK, ok)
	s.post(t, `{"query":"{hello}","variables":{"x":"`+strings.Repeat("x", length)+`"}}`, "X-Client", "b").want(t, http.StatusOK, ok)
	_, _ = first.Close(), second.Close()
	for s.handler.memory.Held() > 0 {
		runtime.Gosched()
	}
}

// Who takes an answer too slowly, or sends a request so, is dropped.
func TestSlowClientsAreDropped(t *testing.T) {
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Grace, cfg.Limits.Rate = time.Millisecond, 1<<30
		cfg.Limits.Body = 2 * shortBody
		schema.fields["hello"] = func(context.Context) (any, error) { return strings.Repeat("x", 7<<20), nil }
	})
	const body = `{"query":"{hello}"}`
	s.upload(t, "", body, len(body))
	for len(s.journal.lines(t)) == 0 { // until it was answered
		runtime.Gosched()
	}
	if err := s.handler.Drain(t.Context()); err != nil || s.handler.memory.Held() > 0 {
		t.Errorf("%v, %d bytes are held", err, s.handler.memory.Held())
	}
	c := s.upload(t, "", body, shortBody+1)
	if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 400 ") {
		t.Errorf("%v: %s", err, text)
	}
}

// Variables take the memory that they are decoded to.
func TestVariablesTakeMemory(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Limits.Memory = 40 << 20
		cfg.Limits.Wait = time.Millisecond
	})
	for name, element := range map[string]string{"objects": `{}`, "members": `{"a":1}`, "lists": `[[]]`, "numbers": `1,2,3`, "text": `"` + strings.Repeat("x", 1000) + `"`} {
		text := []byte(`{"x":[` + strings.Repeat(element+",", (1<<20-100)/(len(element)+1)) + `1]}`)
		var decoded map[string]any
		size := allocated(func() {
			if p := (jsonText{}).read(text, &decoded); p != nil {
				t.Error(p.message)
			}
		})
		runtime.KeepAlive(decoded)
		if counted := decodedSize(text); counted < size/2 {
			t.Errorf("%s: %d bytes are counted for %d", name, counted, size)
		}
		a := s.post(t, `{"query":"{hello}","variables":`+string(text)+`}`)
		if want := decodedSize(text) > 18<<20; want != (a.status == http.StatusServiceUnavailable) {
			t.Errorf("%s: status %d, %d bytes", name, a.status, decodedSize(text))
		}
	}
	if held := s.handler.memory.Held(); held > 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// The parameters of a URL take what they are decoded to, as those of a body do.
func TestParametersTakeMemory(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Limits.Memory, cfg.Limits.Wait = 1<<20, time.Millisecond
	})
	lists := url.QueryEscape(`{"a":[` + strings.Repeat("[],", 5_000) + `1]}`)
	for _, name := range []string{"variables", "extensions"} {
		s.do(t, http.MethodGet, "/?query="+url.QueryEscape("{hello}")+"&"+name+"="+lists, "").wantError(t, http.StatusServiceUnavailable, CodeUnavailable, "--max-memory")
	}
}

// allocated is how many bytes fn allocates.
func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// An operation that reads more than there is memory for is refused as a whole; of a
// mutation it is not said that it was executed, since it may have read before it wrote.
func TestReadsTakeMemory(t *testing.T) {
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Memory = 4 << 20
		read := func(ctx context.Context) (any, error) {
			_ = CountRead(ctx, 1, 3<<20, 3<<20)
			return "read", nil
		}
		schema.fields["hello"], schema.fields["change"] = read, read
	})
	a := s.query(t, `{hello}`)
	a.wantError(t, http.StatusServiceUnavailable, CodeUnavailable, "--max-memory")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.query(t, `mutation {change}`).wantError(t, http.StatusServiceUnavailable, CodeUnavailable, "or a part of it: read what is there")
	c := s.connect(t, `{}`)
	c.send(t, subscribeMessage("1", "{hello}"))
	if got := c.receive(t); !strings.Contains(got, "--max-memory") {
		t.Error(got)
	}
	c.want(t, `{"type":"complete","id":"1"}`)
}

// What an answer of the generated executor takes is counted while it is put together.
func TestAnswersTakeMemory(t *testing.T) {
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Memory = 2 << 20
		cfg.Schema = BoundAnswers(schema, Limits{Answer: 16 << 20})
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			oc := graphql.GetOperationContext(ctx)
			value := oc.RootResolverMiddleware(ctx, func(context.Context) graphql.Marshaler {
				return graphql.WriterFunc(func(w io.Writer) {
					for range 100_000 {
						_, _ = io.WriteString(w, strings.Repeat("x", 100))
					}
				})
			})
			var text bytes.Buffer
			value.MarshalGQL(&text)
			return text.Len(), nil
		}
	})
	s.query(t, `{hello}`).wantError(t, http.StatusServiceUnavailable, CodeUnavailable, "--max-memory")
}

// Operations that may take long, and those that are large, do not keep out others.
func TestSlowOperationsKeepNobodyOut(t *testing.T) {
	large := `{"extensions":{"a":[{}` + strings.Repeat(",{}", 1000) + `]},`
	for _, format := range []string{`{"query":"{a%d: items {nodes {id}}}"}`, large + `"query":"mutation {a%d: changeItem {id}}"}`} {
		entered, release := make(chan bool), make(chan bool)
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Limits.Slow, cfg.Limits.Wait, cfg.Limits.Time = 1, time.Minute, time.Hour // who waits is not sent away
			cfg.Client = byHeader
			item := func(context.Context) (any, error) {
				entered <- true
				<-release
				return map[string]any{}, nil
			}
			schema.fields["items"], schema.fields["changeItem"] = item, item
		})
		done := make(chan answer)
		const attackers = 20
		for i := range attackers { // what took no time would be known as quick
			go func() { done <- s.post(t, fmt.Sprintf(format, i)) }()
		}
		for range attackers {
			select {
			case <-entered:
			case a := <-done:
				t.Fatalf("status %d: %s", a.status, a.text)
			}
			select {
			case <-entered:
				t.Error("two slow operations are executed")
			default:
			}
			s.query(t, `{hello}`, "X-Client", "another").want(t, http.StatusOK, ok)
			release <- true
			if a := <-done; a.status != http.StatusOK {
				t.Errorf("status %d: %s", a.status, a.text)
			}
		}
	}
}

// A query ends when it has been executed for long, by the clock and by the processor; a
// mutation goes on, unless it asks for pages, or for fields with a weight.
func TestExecutionIsBounded(t *testing.T) {
	for _, c := range []struct {
		document  string
		wall, cpu time.Duration // that each field takes
		status    int
		errors    bool
	}{
		{`{hello}`, time.Second, time.Second, http.StatusGatewayTimeout, true},
		{`{hello}`, 600 * time.Millisecond, time.Second, http.StatusGatewayTimeout, true}, // the collector had a processor
		{`{hello}`, time.Second, 0, http.StatusOK, false},                                 // another process had the processors
		{`{hello}`, 0, time.Second, http.StatusOK, false},                                 // another operation had them
		{`mutation {change}`, time.Second, time.Second, http.StatusOK, false},
		{`mutation {changeItem {more(first: 1) {nodes {id}}}}`, time.Second, time.Second, http.StatusOK, true},
		{`mutation {changeItem {id}}`, time.Second, time.Second, http.StatusOK, true},
	} {
		var wall, cpu atomic.Int64
		field := func(ctx context.Context) (any, error) {
			wall.Add(int64(c.wall))
			cpu.Add(int64(c.cpu))
			return "done", ctx.Err()
		}
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Now = func() time.Time { return time.Unix(0, wall.Load()) }
			cfg.CPU = func() time.Duration { return time.Duration(cpu.Load()) }
			schema.fields["hello"], schema.fields["change"], schema.fields["changeItem"] = field, field, field
			cfg.Weight = func(_, field, _ string) int { return strings.Count(field, "id") }
		})
		if a := s.query(t, c.document); a.status != c.status || strings.Contains(a.text, `"errors"`) != c.errors {
			t.Errorf("%+v: status %d, %s", c, a.status, a.text)
		}
	}
}

// A mutation that has taken its time begins no more of its fields, and says so. Its first one is executed in
// any case: on a busy machine its time may be over before.
func TestMutationsBeginNoMoreWhenTheirTimeIsOver(t *testing.T) {
	for before, want := range map[time.Duration]string{0: "c", defaultLimits().Execution: "b"} {
		var used atomic.Int64
		executed := 0
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Now = func() time.Time { return time.Unix(0, used.Load()) }
			cfg.CPU = func() time.Duration { return time.Duration(used.Load()) }
			cfg.Schema = BoundAnswers(schema, defaultLimits())
			schema.fields["change"] = func(ctx context.Context) (any, error) {
				if executed == 0 {
					used.Add(int64(before))
				}
				oc := graphql.GetOperationContext(ctx)
				root := graphql.WithRootFieldContext(ctx, &graphql.RootFieldContext{
					Field: graphql.CollectFields(oc, oc.Operation.SelectionSet, []string{"Mutation"})[executed],
				})
				oc.RootResolverMiddleware(root, func(context.Context) graphql.Marshaler {
					executed++
					used.Add(int64(defaultLimits().Execution/8) + 1)
					return graphql.MarshalInt(1)
				})
				return 1, nil
			}
		})
		a := s.query(t, `mutation {a: change b: change c: change}`)
		if first := strings.Index(a.text, `"path":["`); first < 0 || a.text[first+9:first+10] != want || !strings.Contains(a.text, "nothing was written by it") || !strings.Contains(a.text, `"code":"UNAVAILABLE"`) {
			t.Errorf("after %s, %d fields were executed: %s", before, executed, a.text)
		}
	}
}

// Root fields of the generated executor are executed one after another: together, they
// would hold what all of them read before the first is refused.
func TestRootFieldsTakeTurns(t *testing.T) {
	var inside, most atomic.Int64
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Schema = BoundAnswers(schema, cfg.Limits)
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			oc := graphql.GetOperationContext(ctx)
			var fields sync.WaitGroup
			for range 10 {
				fields.Go(func() {
					oc.RootResolverMiddleware(ctx, func(context.Context) graphql.Marshaler {
						most.Store(max(most.Load(), inside.Add(1)))
						runtime.Gosched()
						inside.Add(-1)
						return graphql.Null
					})
				})
			}
			fields.Wait()
			return most.Load(), nil
		}
	})
	s.query(t, `{hello}`).want(t, http.StatusOK, `{"data":{"hello":1},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`)
}
