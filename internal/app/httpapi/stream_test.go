package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
)

func TestServerSentEvents(t *testing.T) {
	s := newServer(t, nil)
	a := s.query(t, `query Q {hello}`, "Accept", mediaEvents)
	a.want(t, 200, ":\n\nevent: next\ndata: "+ok+"\n\nevent: complete\n\n")
	if got := a.header.Get("Content-Type"); got != mediaEvents {
		t.Errorf("Content-Type %q", got)
	}
	a = s.query(t, `{nothing}`, "Accept", mediaEvents)
	if !strings.Contains(a.text, `"code":"BAD_USER_INPUT"`) || !strings.HasSuffix(a.text, "event: complete\n\n") {
		t.Errorf("%+v", a)
	}
	s.post(t, `{"query": 1}`, "Accept", mediaEvents).wantError(t, 400, CodeBadInput, `"query" must be a string`)
	s.post(t, `{"query": `, "Accept", mediaEvents).wantError(t, 400, CodeBadInput, "not valid JSON")
	s.do(t, "POST", "/", "{}", "Accept", mediaEvents, "Content-Type", "text/plain").wantError(t, 415, CodeBadInput, "")
	lines := s.journal.lines(t)
	if lines[0]["transport"] != "SSE" || lines[0]["name"] != "Q" || lines[0]["documentsRead"] != 7.0 {
		t.Errorf("log: %v", lines[0])
	}
}

// client speaks graphql-transport-ws.
type client struct {
	*websocket.Conn
}

func (s *server) dial(t *testing.T, protocol string, header http.Header) (*client, *http.Response, error) {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{protocol}, HandshakeTimeout: 10 * time.Second}
	conn, response, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), header)
	if err != nil {
		return nil, response, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn}, response, nil
}

func (c *client) send(t *testing.T, text string) {
	t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next message, pings left out.
func (c *client) receive(t *testing.T) string {
	t.Helper()
	for {
		_, text, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var m struct{ Type string }
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if m.Type != "ping" && m.Type != "pong" {
			return strings.TrimSpace(string(text))
		}
	}
}

func (c *client) want(t *testing.T, text string) {
	t.Helper()
	var want, got any
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(c.receive(t)), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func (s *server) connect(t *testing.T, payload string) *client {
	t.Helper()
	c, response, err := s.dial(t, subprotocol, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	c.send(t, `{"type":"connection_init","payload":`+payload+`}`)
	c.want(t, `{"type":"connection_ack"}`)
	return c
}

func TestWebSocket(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Identify = func(r *http.Request) (context.Context, string, error) {
			return r.Context(), r.Header.Get("X-Actor"), nil
		}
	})
	c := s.connect(t, `{"X-Actor":"ada"}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"query Q {hello}"}}`)
	c.want(t, `{"type":"next","id":"1","payload":`+ok+`}`)
	c.want(t, `{"type":"complete","id":"1"}`)
	c.send(t, `{"type":"subscribe","id":"2","payload":{"query":"mutation {change}"}}`)
	c.want(t, `{"type":"next","id":"2","payload":{"data":{"change":1},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}}`)
	c.want(t, `{"type":"complete","id":"2"}`)
	for _, document := range []string{`{nothing}`, `{`, `{items(first: 501) {nodes {id}}}`} {
		c.send(t, `{"type":"subscribe","id":"3","payload":{"query":"`+document+`"}}`)
		if got := c.receive(t); !strings.Contains(got, `"type":"error"`) || !strings.Contains(got, CodeBadInput) {
			t.Errorf("%s: %s", document, got)
		}
		c.want(t, `{"type":"complete","id":"3"}`)
	}
	line := s.journal.lines(t)[0]
	if line["transport"] != "WebSocket" || line["actor"] != "ada" || line["name"] != "Q" || line["documentsRead"] != 7.0 {
		t.Errorf("log: %v", line)
	}
}

func TestWebSocketHandshake(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Origins = []string{"https://app.example.org"}
		cfg.Limits.WebSockets = 1
	})
	own := "http://" + strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		protocol, origin string
		want             int
	}{
		{"graphql-ws", "", 400},
		{"nonsense", "", 400},
		{subprotocol, "https://evil.example.org", 403},
		{subprotocol, "null", 403},
		{subprotocol, own, 101},
		{subprotocol, "https://app.example.org", 101},
		{subprotocol, "", 101},
	} {
		conn, response, err := s.dial(t, c.protocol, http.Header{"Origin": {c.origin}})
		if response == nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%s from %q: %d, want %d", c.protocol, c.origin, response.StatusCode, c.want)
		}
		if conn == nil {
			continue
		}
		_, second, err := s.dial(t, subprotocol, nil)
		if err == nil || second == nil || second.StatusCode != 503 {
			t.Fatalf("a second connection: %v", err)
		}
		_ = second.Body.Close()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := s.handler.sockets.Acquire(t.Context(), 1); err != nil { // the server has seen the end
			t.Fatal(err)
		}
		s.handler.sockets.Release(1)
	}
	s.do(t, "GET", "/", "", "Connection", "Upgrade", "Upgrade", "h2c").wantError(t, 400, CodeBadInput, "WebSocket")
	s.do(t, "GET", "/", "", "Connection", "Upgrade", "Upgrade", "websocket").wantError(t, 400, CodeBadInput, "version 13")
}

func TestWebSocketMessageLimit(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.Body = 200 })
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"{hello}","variables":{"a":"`+strings.Repeat("x", 200)+`"}}}`)
	if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
		t.Errorf("%v", err)
	}
}

func TestWebSocketsAreDrained(t *testing.T) {
	entered, release := make(chan bool), make(chan bool)
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Wait = 10 * time.Millisecond
		schema.fields["block"] = func(context.Context) (any, error) {
			entered <- true
			<-release
			return "done", nil
		}
	})
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"{block}"}}`)
	<-entered
	drained := make(chan error)
	go func() { drained <- s.handler.Drain(context.Background()) }()
	// Once draining has begun, new operations are refused.
	for s.handler.places.TryAcquire(1) {
		s.handler.places.Release(1)
	}
	c.send(t, `{"type":"subscribe","id":"2","payload":{"query":"{hello}"}}`)
	if got := c.receive(t); !strings.Contains(got, CodeUnavailable) {
		t.Errorf("while draining: %s", got)
	}
	c.want(t, `{"type":"complete","id":"2"}`)
	close(release)
	c.want(t, `{"type":"next","id":"1","payload":{"data":{"block":"done"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}}`)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("the connection ended with %v", err)
			}
			return
		}
	}
}

func TestWebSocketBadMessages(t *testing.T) {
	s := newServer(t, nil)
	for _, message := range []string{
		"nonsense", "", "[]", "{\"type\":\"subscribe\",\"id\":\"\xff\"}", `{"type":"subscribe","id":"1","payload":{"query":"{hello(name: \"\ud800\")}"}}`,
	} {
		c := s.connect(t, `{}`)
		c.send(t, message)
		if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, closeInvalid) {
			t.Errorf("%q: %v", message, err)
		}
	}
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":7}}`)
	if got := c.receive(t); !strings.Contains(got, `"type":"error"`) {
		t.Errorf("a query that is a number: %s", got)
	}
}

// An answer that cannot be encoded is an event that says so, and no part of
// another.
func TestEventThatCannotBeEncoded(t *testing.T) {
	s := newServer(t, func(_ *Config, schema *fakeSchema) {
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			graphql.RegisterExtension(ctx, "odd", func() {})
			return "world", nil
		}
	})
	got := s.query(t, `{hello}`, "Accept", mediaEvents).text
	const before, after = ":\n\nevent: next\ndata: {\"errors\":[{\"message\":\"something went wrong", "\n\nevent: complete\n\n"
	if !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) || strings.Count(got, "event: ") != 2 {
		t.Errorf("%q", got)
	}
}
