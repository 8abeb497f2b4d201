package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
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
	a.want(t, 200, "event: next\ndata: "+ok+"\n\nevent: complete\ndata:\n\n")
	if got := a.header.Get("Content-Type"); got != mediaEvents {
		t.Errorf("Content-Type %q", got)
	}
	a = s.query(t, `{nothing}`, "Accept", mediaEvents)
	if !strings.Contains(a.text, `"code":"BAD_USER_INPUT"`) || !strings.HasSuffix(a.text, "event: complete\ndata:\n\n") {
		t.Errorf("%+v", a)
	}
	refused := s.post(t, `{"query": 1}`, "Accept", mediaEvents)
	refused.wantError(t, 400, codeBadInput, `a member "/query" that is not a string`)
	if got := refused.header.Get("Content-Type"); got != mediaJSON+"; charset=utf-8" {
		t.Errorf("a refusal has the Content-Type %q", got)
	}
	s.post(t, `{"query": `, "Accept", mediaEvents).wantError(t, 400, codeBadInput, "not valid JSON")
	s.do(t, "POST", "/", "{}", "Accept", mediaEvents, "Content-Type", "text/plain").wantError(t, 415, codeBadInput, "")
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
	dialer := websocket.Dialer{Subprotocols: []string{protocol}, HandshakeTimeout: testTimeout}
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
		cfg.Identify = func(r *http.Request) (Identity, error) {
			return Identity{Context: r.Context(), Actor: r.Header.Get("X-Actor")}, nil
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
		if got := c.receive(t); !strings.Contains(got, `"type":"error"`) || !strings.Contains(got, codeBadInput) {
			t.Errorf("%s: %s", document, got)
		}
	}
	named := func(line map[string]any) bool { return line["name"] == "Q" } // lines are written behind the messages
	for !slices.ContainsFunc(s.journal.lines(t), named) {
		runtime.Gosched()
	}
	line := s.journal.lines(t)[slices.IndexFunc(s.journal.lines(t), named)]
	if line["transport"] != "WebSocket" || line["actor"] != "ada" || line["documentsRead"] != 7.0 {
		t.Errorf("log: %v", line)
	}
}

func TestWebSocketHandshake(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Origins = []string{"https://app.example.org"}
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
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	s.do(t, "GET", "/", "", "Connection", "Upgrade", "Upgrade", "h2c").wantError(t, 400, codeBadInput, "WebSocket")
	s.do(t, "GET", "/", "", "Connection", "Upgrade", "Upgrade", "websocket").wantError(t, 400, codeBadInput, "version 13")
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
	for s.handler.running.TryAcquire(1) {
		s.handler.running.Release(1)
	}
	c.send(t, `{"type":"subscribe","id":"2","payload":{"query":"{hello}"}}`)
	if got := c.receive(t); !strings.Contains(got, CodeUnavailable) {
		t.Errorf("while draining: %s", got)
	}
	close(release)
	c.want(t, `{"type":"next","id":"1","payload":{"data":{"block":"done"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}}`)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, websocket.CloseGoingAway) {
				t.Errorf("the connection ended with %v", err)
			}
			return
		}
	}
}

func TestWebSocketBadMessages(t *testing.T) {
	s := newServer(t, nil)
	for _, bad := range [][2]string{
		{"nonsense", `the message must be a JSON object such as {"type": "ping"}`},
		{"", `the message is empty; send a JSON object such as {"type": "ping"}`},
		{"[]", "the message is a list: send one message at a time"},
		{"7", `the message must be a JSON object such as {"type": "ping"}`},
		{"{\"type\":\"subscribe\",\"id\":\"\xff\"}", "the message is not valid JSON: invalid UTF-8 (at byte 26)"},
		{`{"type":"subscribe","id":"1","payload":{"query":"{hello(name: \"\ud800\")}"}}`, "the message is not valid JSON: invalid surrogate pair `\\ud800"},

		{`{"type":"nope"}`, `the "type" of a message must be connection_init, subscribe, complete, ping or pong`},
		{`{"type":"next","id":"1"}`, `the "type" of a message must be connection_init, subscribe, complete, ping or pong`},
		{`{"type":7}`, `the message has a member "/type" that is not a string`},
		{`{"id":"1"}`, `the "type" of a message must be`},
		{`{"type":"complete","id":1}`, `the message has a member "/id" that is not a string`},
		{`{"type":"connection_init","payload":"ada"}`, "the payload of connection_init must be an object"},
		{`{"type":"ping","payload":[]}`, "the payload of ping must be an object"},
		{`{"type":"subscribe","payload":{"query":"{hello}"}}`, `a message of the type subscribe must have an "id", which is not empty`},
		{`{"type":"subscribe","id":"","payload":{"query":"{hello}"}}`, `a message of the type subscribe must have an "id", which is not empty`},
		{`{"type":"complete"}`, `a message of the type complete must have an "id", which is not empty`},
		{`{"type":"subscribe","id":"1"}`, "the payload of subscribe must be an object"},
		{`{"type":"subscribe","id":"1","payload":"x"}`, "the payload of subscribe must be an object"},
		{`{"type":"subscribe","id":"1","payload":{"query":7}}`, `the payload of subscribe has a member "/query" that is not a string`},
		{`{"type":"subscribe","id":"1","payload":{"query":"{hello}","variables":[]}}`, `the payload of subscribe has a member "/variables" that is not an object`},
		{`{"type":"nope` + strings.Repeat("é", 200) + `"}`, `the "type" of a message must be`},
	} {
		message, reason := bad[0], bad[1]
		check := func(c *client, code int, reason string) {
			t.Helper()
			c.send(t, message)
			_, _, err := c.ReadMessage()
			if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != code || !strings.HasPrefix(closed.Text, reason) {
				t.Errorf("%q: %v; want %d, %s", message, err, code, reason)
			}
		}
		check(s.connect(t, `{}`), closeInvalid, reason)
		first, response, err := s.dial(t, subprotocol, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if strings.HasPrefix(message, `{"type":"subscribe","id":"1","payload":{"query":7`) || strings.Contains(message, `"variables":[]`) {
			check(first, closeUnauthorized, "Unauthorized") // what is in an operation is not looked at before
			continue
		}
		check(first, closeInvalid, reason)
	}
}

// For an answer that cannot be encoded there is one that says so, and no part of another.
func TestAnswerThatCannotBeEncoded(t *testing.T) {
	s := newServer(t, func(_ *Config, schema *fakeSchema) {
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			graphql.RegisterExtension(ctx, "odd", func() {})
			return "world", nil
		}
	})
	s.query(t, `{hello}`).wantError(t, http.StatusInternalServerError, codeInternal, "something went wrong")
	s.query(t, `{hello}`, "Accept", mediaEvents).wantError(t, http.StatusInternalServerError, codeInternal, "something went wrong")
}

// Lines of a log that adds the request's id name it once.
func TestLogNamesRequestsOnce(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Logger = slog.New(naming{cfg.Logger.Handler()})
		cfg.Recover = func(ctx context.Context, _ any) error {
			cfg.Logger.InfoContext(ctx, "recovered")
			return errors.New("internal error")
		}
	})
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"{hello}"}}`)
	c.want(t, `{"type":"next","id":"1","payload":`+ok+`}`)
	c.want(t, `{"type":"complete","id":"1"}`)
	s.query(t, `{hello}`)
	s.query(t, `{hello}`, "Accept", mediaEvents)
	s.query(t, `{panics}`)
	for len(s.journal.lines(t)) < 4 { // one for each operation, which are written behind the answers
		runtime.Gosched()
	}
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	for line := range strings.Lines(s.journal.buf.String()) {
		if strings.Count(line, `"request":`) != 1 {
			t.Errorf("the request is not named once: %s", line)
		}
	}
}

// naming adds the request's id to lines.
type naming struct{ slog.Handler }

func (n naming) Handle(ctx context.Context, r slog.Record) error {
	if request := RequestID(ctx); request != "" {
		r.AddAttrs(slog.String("request", request))
	}
	return n.Handler.Handle(ctx, r)
}
