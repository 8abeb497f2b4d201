package httpapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// writer notes how many operations have a place when something is written.
type writer struct {
	*httptest.ResponseRecorder
	inside func() int
	most   int
}

func (w *writer) Write(p []byte) (int, error) {
	w.most = max(w.most, w.inside())
	return w.ResponseRecorder.Write(p)
}

// Nothing is sent while an operation has its place: the client may not take it.
func TestNoPlaceIsKeptToSend(t *testing.T) {
	s := newHandler(t, nil)
	for _, media := range []string{mediaJSON, mediaEvents} {
		for _, document := range []string{`{hello}`, `{nothing}`} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"query":"`+document+`"}`))
			r.Header.Set("Content-Type", mediaJSON)
			r.Header.Set("Accept", media)
			w := &writer{httptest.NewRecorder(), s.handler.gate.InFlight, 0}
			s.handler.ServeHTTP(w, r)
			if w.most > 0 || w.Body.Len() == 0 {
				t.Errorf("%s %s: %d operations had a place; %s", media, document, w.most, w.Body)
			}
		}
	}
}

// No place is kept while there is no memory for what a request is decoded to.
func TestNoPlaceIsKeptForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHandler(t, func(cfg *Config, _ *fakeSchema) {
			cfg.Client = byHeader
			cfg.Limits.Memory, cfg.Limits.Wait = 4<<20, time.Minute
		})
		others := s.handler.memory.Hold("a")
		others.Set(2 << 20)
		for name, body := range map[string]string{
			"variables": `{"query":"{hello}","variables":{"x":[` + strings.Repeat("[],", 5_000) + `1]}}`,
			"document":  `{"query":"{hello} #` + strings.Repeat("x", 10_000) + `"}`,
		} {
			w := httptest.NewRecorder()
			go func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
				r.Header.Set("Content-Type", mediaJSON)
				r.Header.Set("X-Client", "a")
				s.handler.ServeHTTP(w, r)
			}()
			synctest.Wait()
			if n := s.handler.gate.InFlight(); n > 0 {
				t.Errorf("%s: %d operations have a place", name, n)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: status %d, %s", name, w.Code, w.Body)
			}
		}
		others.Set(0)
		if held := s.handler.memory.Held(); held > 0 {
			t.Errorf("%d bytes are still held", held)
		}
	})
}

// An operation that its client breaks off is not known as quick from then on.
func TestBrokenOffIsNotKnownAsQuick(t *testing.T) {
	s := newHandler(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.Slow, cfg.Limits.Time = 1, 100*time.Millisecond })
	query := func(ctx context.Context) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(`{"query":"{items {nodes {id}}}"}`))
		r.Header.Set("Content-Type", mediaJSON)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w
	}
	gone, leave := context.WithCancel(t.Context())
	s.schema.fields["items"] = func(context.Context) (any, error) {
		leave()
		return nil, gone.Err()
	}
	query(gone)
	p, err := s.handler.gate.Enter(t.Context(), "another", true) // the one that is for slow ones
	if err != nil {
		t.Fatal(err)
	}
	if w := query(t.Context()); !strings.Contains(w.Body.String(), "the server is busy") {
		t.Error(w.Body)
	}
	p.Leave(true)
}

// An operation may take longer than a request to be read: package net/http takes the deadline
// away at its end.
func TestReadTimeoutIsForReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHandler(t, func(_ *Config, schema *fakeSchema) {
			schema.fields["hello"] = func(ctx context.Context) (any, error) {
				time.Sleep(20 * time.Second)
				return "world", ctx.Err()
			}
		})
		connections := make(piped)
		server := &http.Server{Handler: s.handler, ReadTimeout: 10 * time.Second}
		go func() { _ = server.Serve(connections) }()
		here, there := net.Pipe()
		connections <- there
		read := bufio.NewReader(here)
		for _, request := range []string{
			"GET /?query={hello} HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n" + `{"query":"{hello}"}`,
		} {
			if _, err := here.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(read, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusOK || string(text) != ok {
				t.Errorf("status %d, %s: %v", response.StatusCode, text, err)
			}
			_ = response.Body.Close()
		}
		_, _ = here.Close(), server.Close()
	})
}

// An operation's context is one of context.WithTimeout, whether Done is called
// before it ends or not.
func TestOpContext(t *testing.T) {
	type key struct{}
	for _, waits := range []bool{false, true} {
		for _, c := range []struct {
			name string
			do   func(end, cancelParent func())
			want error
		}{
			{"time", func(_, _ func()) { time.Sleep(time.Minute) }, context.DeadlineExceeded},
			{"time and end", func(end, _ func()) { time.Sleep(time.Minute); synctest.Wait(); end() }, context.DeadlineExceeded},
			{"end", func(end, _ func()) { end(); end(); time.Sleep(time.Minute) }, context.Canceled},
			{"parent", func(_, cancel func()) { cancel(); time.Sleep(time.Minute) }, context.Canceled},
			{"nothing", func(_, _ func()) { time.Sleep(time.Minute - 1) }, nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
					defer cancel()
					op := &operation{}
					ctx := newOpContext(parent, op, time.Now, time.Now().Add(time.Minute))
					defer ctx.end()
					var child context.Context
					if waits {
						ctx.Done()
						made, cancel := context.WithCancel(ctx)
						defer cancel()
						child = made
					}
					if until, ok := ctx.Deadline(); !ok || until != time.Now().Add(time.Minute) {
						t.Errorf("deadline %v, %v", until, ok)
					}
					if operationOf(ctx) != op || ctx.Value(key{}) != "value" || ctx.Value("nothing") != nil {
						t.Error("values are missing")
					}
					c.do(ctx.end, cancel)
					synctest.Wait()
					for range 2 { // it stays so
						if err := ctx.Err(); !errors.Is(err, c.want) {
							t.Errorf("%v, want %v", err, c.want)
						}
						closed := false
						select {
						case <-ctx.Done():
							closed = true
						default:
						}
						if closed != (c.want != nil) {
							t.Errorf("closed: %v", closed)
						}
						ctx.end()
						if c.want == nil {
							break
						}
					}
					if err := ctx.Err(); err == nil {
						t.Error("it did not end")
					}
					synctest.Wait()
					if child != nil && (child.Err() == nil || c.want != nil && !errors.Is(context.Cause(child), c.want)) {
						t.Errorf("a context that was made of it: %v, %v", child.Err(), context.Cause(child))
					}
				})
			})
		}
	}
}

// The earlier of two deadlines counts.
func TestOpContextWithDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ctx := newOpContext(parent, &operation{}, time.Now, time.Now().Add(time.Minute))
		defer ctx.end()
		if until, ok := ctx.Deadline(); !ok || until != time.Now().Add(time.Second) {
			t.Errorf("deadline %v, %v", until, ok)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A deadline is of the system's clock, whatever the server takes for the time:
// drivers compare with that before they send anything.
func TestDeadlineIsOfTheSystemsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stands := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
		ctx := newOpContext(t.Context(), &operation{}, func() time.Time { return stands }, stands.Add(time.Second))
		defer ctx.end()
		if until, ok := ctx.Deadline(); !ok || until != time.Now().Add(time.Second) {
			t.Errorf("the deadline is %v, %v", until, ok)
		}
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
	})
}

// Done is closed when Err finds that the processor time is over.
func TestDoneIsClosedWhenProcessorTimeIsOver(t *testing.T) {
	var passed time.Duration
	begin := time.Now()
	ctx := newOpContext(t.Context(), &operation{}, func() time.Time { return begin.Add(passed) }, begin.Add(time.Hour))
	ctx.execute(begin, time.Second, &processor{now: func() time.Duration { return passed }}, false)
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	passed = time.Second
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	<-ctx.Done()
	<-child.Done()
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// An operation whose sender has gone was cancelled, however long it was executed.
func TestWhoHasGoneDidNotTakeTooLong(t *testing.T) {
	var passed time.Duration
	begin := time.Now()
	parent, leave := context.WithCancel(t.Context())
	ctx := newOpContext(parent, &operation{}, func() time.Time { return begin.Add(passed) }, begin.Add(time.Hour))
	ctx.execute(begin, time.Second, &processor{now: func() time.Duration { return passed }}, false)
	passed = time.Second
	leave()
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The processor time is asked for now and then; an operation has a little less for that, and
// never more.
func TestProcessorTimeIsAskedForSeldom(t *testing.T) {
	asked := 0
	begin := time.Now()
	p := processor{now: func() time.Duration { asked++; return time.Duration(asked) }}
	for i := range 100 {
		if used := p.before(begin.Add(time.Duration(i)*time.Millisecond), 20*time.Millisecond); used != time.Duration(asked) || asked != 1+i/21 {
			t.Errorf("after %d ms: asked %d times, %d", i, asked, used)
		}
	}
}

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

// Where introspection is off, no error suggests a name that is similar to one that was sent.
func TestErrorsSuggestNoNames(t *testing.T) {
	requests := []string{`{helo}`, `{hello(nam: "x")}`, `{nodes}`, `{items {node {id}}}`, `{...F} fragment F on Itm {id}`, `query ($v: Itemm) {hello(name: $v)}`, `{hello @skp(if: true)}`, `{block {x}}`}
	for _, introspection := range []bool{true, false} {
		s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Introspection = introspection })
		suggested := false
		for _, request := range requests {
			got := s.query(t, request).text
			if !strings.Contains(got, `"message"`) {
				t.Errorf("%s: %s", request, got)
			}
			suggested = suggested || strings.Contains(strings.ToLower(got), "did you mean")
		}
		if suggested != introspection {
			t.Errorf("introspection: %t, suggestions: %t", introspection, suggested)
		}
	}
}
