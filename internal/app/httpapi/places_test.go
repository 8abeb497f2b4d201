package httpapi

import (
	"bufio"
	"context"
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
			w := &writer{httptest.NewRecorder(), s.handler.gate.Inside, 0}
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
			if n := s.handler.gate.Inside(); n > 0 {
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
