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
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
)

// wantClosed wants the connection to be closed, with a code and a reason, and
// nothing else.
func (c *client) wantClosed(t *testing.T, code int, reason string) {
	t.Helper()
	_, text, err := c.ReadMessage()
	if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != code || !strings.HasPrefix(closed.Text, reason) {
		t.Errorf("%s, %v; want %d, %s", text, err, code, reason)
	}
}

// open opens a WebSocket on which nothing was said.
func (s *server) open(t *testing.T) *client {
	t.Helper()
	c, response, err := s.dial(t, subprotocol, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return c
}

// What is against the protocol of graphql-transport-ws ends the connection, with
// the protocol's codes.
func TestWebSocketViolations(t *testing.T) {
	var begun chan bool
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		begun, _ = blocking(schema)
		cfg.Identify = func(r *http.Request) (Identity, error) {
			if r.Header.Get("X-Actor") == "bad" {
				return Identity{}, errors.New("who are you? " + strings.Repeat("é", 200))
			}
			if given := r.Header["X-Actor"]; len(given) > 0 && given[0] == "" {
				return Identity{}, errors.New("the actor is empty")
			}
			return Identity{Context: r.Context()}, nil
		}
	})
	tests := []struct {
		name     string
		messages []string
		code     int
		reason   string
	}{
		{"an operation first", []string{subscribeMessage("1", "{hello}")}, 4401, "Unauthorized"},
		{"nobody", []string{`{"type":"connection_init","payload":{"X-Actor":"bad"}}`}, 4403, "Forbidden: who are you?"},
		{"a number", []string{`{"type":"connection_init","payload":{"X-Actor":5}}`}, 4403, "Forbidden: the actor is empty"},
		{"null", []string{`{"type":"connection_init","payload":{"X-Actor":null}}`}, 4403, "Forbidden: the actor is empty"},
		{"an empty name", []string{`{"type":"connection_init","payload":{"x-actor":""}}`}, 4403, "Forbidden: the actor is empty"},
		{"a second beginning", []string{initMessage, initMessage}, 4429, "Too many initialisation requests"},
		{"a long id", []string{initMessage, subscribeMessage(strings.Repeat("a", longestID+1), "{hello}")}, 4400, `a message of the type subscribe must have an "id"`},
		{"an id that is in use", []string{initMessage, subscribeMessage("a", "{block}"), subscribeMessage("a", "{hello}")}, 4409, "Subscriber for a already exists"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := s.open(t)
			for i, text := range test.messages {
				c.send(t, text)
				if text == initMessage && i == 0 {
					c.want(t, `{"type":"connection_ack"}`)
				}
				if strings.Contains(text, "block") {
					<-begun
				}
			}
			c.wantClosed(t, test.code, test.reason)
		})
	}
	s.noPanic(t)
}

func TestWebSocketWithoutABeginning(t *testing.T) {
	s := newServer(t, nil)
	s.handler.socketInit = time.Millisecond
	s.open(t).wantClosed(t, 4408, "Connection initialisation timeout")
}

// Pings are answered at any time; ends of operations that are none are no fault.
func TestWebSocketBeforeTheBeginning(t *testing.T) {
	s := newServer(t, nil)
	c := s.open(t)
	for _, text := range []string{`{"type":"complete","id":"1"}`, `{"type":"pong"}`, `{"type":"ping","payload":{"a":1}}`} {
		c.send(t, text)
	}
	_, text, err := c.ReadMessage()
	if want := `{"payload":{"a":1},"type":"pong"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	c.send(t, initMessage)
	c.want(t, `{"type":"connection_ack"}`)
	c.send(t, `{"type":"complete","id":"1"}`)
	c.send(t, subscribeMessage("1", "{hello}"))
	c.want(t, `{"type":"next","id":"1","payload":`+ok+`}`)
}

// An error is the last message of its operation; whatever is wrong.
func TestWebSocketErrorsEndOperations(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.PageSize = 1 })
	c := s.connect(t, `{}`)
	for name, payload := range map[string]string{
		"syntax":         `{"query":"{"}`,
		"validation":     `{"query":"{nothing}"}`,
		"variables":      `{"query":"query ($n: String) {hello(name: $n)}","variables":{"n":{}}}`,
		"limit":          `{"query":"{items(first: 2) {nodes {id}}}"}`,
		"operation name": `{"query":"query A {hello} query B {hello}"}`,
		"no query":       `{}`,
		"not persisted":  `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}`,
	} {
		c.send(t, `{"type":"subscribe","id":"a","payload":`+payload+`}`)
		if got := c.receive(t); !strings.HasPrefix(got, `{"payload":[{"message":`) || !strings.HasSuffix(got, `,"id":"a","type":"error"}`) || !strings.Contains(got, `"code":"`) {
			t.Errorf("%s: %s", name, got)
		}
		c.send(t, subscribeMessage("b", "{hello}"))
		c.want(t, `{"type":"next","id":"b","payload":`+ok+`}`)
		c.want(t, `{"type":"complete","id":"b"}`)
	}
}

// Nothing of an operation that its client has ended is taken for a part of the
// next one with the same id.
func TestWebSocketIDIsUsedAgain(t *testing.T) {
	begun, release := make(chan bool), make(chan bool)
	s := newServer(t, func(_ *Config, schema *fakeSchema) {
		schema.fields["block"] = func(context.Context) (any, error) { // also when its context has ended
			begun <- true
			<-release
			return "late", nil
		}
	})
	c := s.connect(t, `{}`)
	c.send(t, subscribeMessage("a", "{block}"))
	<-begun
	c.send(t, `{"type":"complete","id":"a"}`)
	c.send(t, subscribeMessage("a", "{second: block}"))
	<-begun
	release <- true
	release <- true
	c.want(t, `{"type":"next","id":"a","payload":{"data":{"second":"late"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}}`)
	c.want(t, `{"type":"complete","id":"a"}`)
	c.send(t, subscribeMessage("a", "{hello}"))
	c.want(t, `{"type":"next","id":"a","payload":`+ok+`}`)
	c.want(t, `{"type":"complete","id":"a"}`)
	if err := s.handler.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// panickingSchema panics when an operation begins.
type panickingSchema struct{ *fakeSchema }

func (panickingSchema) Exec(context.Context) graphql.ResponseHandler { panic("oh no") }

// A panic is answered with a code, and ends the operation only.
func TestWebSocketPanics(t *testing.T) {
	for name, change := range map[string]func(*Config, *fakeSchema){
		"at the beginning": func(cfg *Config, schema *fakeSchema) { cfg.Schema = panickingSchema{schema} },
		"of a field":       nil,
		"of an extension": func(_ *Config, schema *fakeSchema) {
			schema.fields["panics"] = func(ctx context.Context) (any, error) {
				graphql.RegisterExtension(ctx, "odd", func() {})
				return "world", nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, change)
			c := s.connect(t, `{}`)
			for range 2 {
				c.send(t, subscribeMessage("a", "{panics}"))
				if got := c.receive(t); !strings.Contains(got, `"code":"INTERNAL"`) || !strings.Contains(got, `"type":"next"`) {
					t.Errorf("%s", got)
				}
				c.want(t, `{"type":"complete","id":"a"}`)
			}
		})
	}
}

// Of a payload only credentials are kept, as long as the WebSocket.
func TestCredentialsOfPayload(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("X-Actor", "ada")
	withPayload(r, []byte(`{"x-actor":"eve","authorization":"Bearer a","Other":"`+strings.Repeat("x", 1<<20)+`"}`))
	if diff := cmp.Diff(http.Header{"X-Actor": {"ada"}, "Authorization": {"Bearer a"}}, r.Header); diff != "" {
		t.Error(diff)
	}
}

// What came with the request is read from a connection that is taken over, and then what comes
// later.
func TestTakenConnectionIsReadOn(t *testing.T) {
	server, sender := net.Pipe()
	defer func() { _, _ = server.Close(), sender.Close() }()
	go func() {
		_, _ = sender.Write([]byte("with the request, "))
		_, _ = sender.Write([]byte("later"))
	}()
	came := bufio.NewReader(server)
	if _, err := came.Peek(1); err != nil {
		t.Fatal(err)
	}
	_, buffers, err := (&taken{ResponseWriter: hijacked{server, came}}).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	want := "with the request, later"
	if n := buffers.Reader.Buffered(); n != len("with the request, ") {
		t.Errorf("%d bytes are in the buffer", n)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(buffers, got); err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// hijacked is a ResponseWriter of a connection, from which a reader has read.
type hijacked struct {
	conn net.Conn
	came *bufio.Reader
}

func (h hijacked) Header() http.Header       { return nil }
func (h hijacked) Write([]byte) (int, error) { return 0, nil }
func (h hijacked) WriteHeader(int)           {}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(h.came, bufio.NewWriter(h.conn)), nil
}
