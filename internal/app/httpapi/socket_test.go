package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

// blocking makes the field "block" wait until its context ends; the channels
// tell of each time that it begins and ends.
func blocking(schema *fakeSchema) (begun, ended chan bool) {
	begun, ended = make(chan bool, 100), make(chan bool, 100)
	schema.fields["block"] = func(ctx context.Context) (any, error) {
		begun <- true
		<-ctx.Done()
		ended <- true
		return nil, ctx.Err()
	}
	return begun, ended
}

// One connection cannot take all places; others get theirs. Subscriptions that wait for events take
// none.
func TestWebSocketOperationsLimit(t *testing.T) {
	var begun, ended chan bool
	var k ticks
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, text)
		cfg.Limits.Concurrent = perSocket + 1
		cfg.Limits.Wait = 10 * time.Millisecond
		begun, ended = blocking(schema)
	})
	c := s.connect(t, `{}`)
	for i := range perSocket + 1 {
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"s%d","payload":{"query":"subscription {ticks}"}}`, i))
		s.awaitSubscriptions(i + 1)
	}
	for i := range perSocket {
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"%d","payload":{"query":"{block}"}}`, i))
		<-begun
	}
	c.send(t, `{"type":"subscribe","id":"another","payload":{"query":"{hello}"}}`)
	if got := c.receive(t); !strings.Contains(got, CodeUnavailable) || !strings.Contains(got, "this connection has 16 operations running") {
		t.Errorf("one more operation: %s", got)
	}
	other := s.connect(t, `{}`)
	other.send(t, `{"type":"subscribe","id":"1","payload":{"query":"{hello}"}}`)
	other.want(t, `{"type":"next","id":"1","payload":`+ok+`}`)

	// The place of an operation that its client ends is free again.
	c.send(t, `{"type":"complete","id":"0"}`)
	<-ended
	got := "" // soon, not at once: the operation has to end
	for try := 0; try == 0 || strings.Contains(got, "operations running"); try++ {
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"next%d","payload":{"query":"{hello}"}}`, try))
		got = c.receive(t)
	}
	if !strings.Contains(got, `{"payload":`+ok) {
		t.Errorf("the operation in its place: %s", got)
	}
}

// The operations of a connection end with it, and give their places back.
func TestWebSocketThatLeaves(t *testing.T) {
	var begun, ended chan bool
	s := newServer(t, func(_ *Config, schema *fakeSchema) { begun, ended = blocking(schema) })
	c := s.connect(t, `{}`)
	const running = 3
	for i := range running {
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"%d","payload":{"query":"{block}"}}`, i))
		<-begun
	}
	if err := c.NetConn().Close(); err != nil { // without a word
		t.Fatal(err)
	}
	for range running {
		<-ended
	}
	if err := s.handler.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// A connection that takes no answers is dropped, with what it holds.
func TestWebSocketThatDoesNotRead(t *testing.T) {
	answered := make(chan bool, 1)
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Grace, cfg.Limits.Rate = time.Millisecond, 1<<30
		schema.fields["hello"] = func(context.Context) (any, error) {
			answered <- true
			return strings.Repeat("x", 7<<20), nil // more than the buffers between take
		}
	})
	// Where the machine is slow the time is over before the operation begins: then
	// another connection asks again.
	for asked := false; !asked; {
		c := s.open(t)
		for _, text := range []string{initMessage, subscribeMessage("1", "{hello}")} {
			_ = c.WriteMessage(websocket.TextMessage, []byte(text)) // the server may have hung up
		}
		refused := make(chan bool)
		go func() {
			if c.begins(`{"type":"connection_ack"`) && c.begins(`{"payload":{"data"`) {
				return // of the answer no more is read
			}
			close(refused)
		}()
		select {
		case <-answered:
			asked = true
		case <-refused:
		}
	}
	if err := s.handler.Drain(t.Context()); err != nil {
		t.Error("the operation holds its place")
	}
}

// begins reports whether there is a next message, and that begins with a text. It
// reads no more of it.
func (c *client) begins(text string) bool {
	_, r, err := c.NextReader()
	if err != nil {
		return false
	}
	got := make([]byte, len(text))
	_, err = io.ReadFull(r, got)
	return err == nil && string(got) == text
}

// piped are connections in memory, for a test in a time of its own.
type piped chan net.Conn

func (p piped) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p piped) Close() error { close(p); return nil }

func (piped) Addr() net.Addr { return &net.TCPAddr{} }

// over opens a WebSocket over a connection, of which here is the client's end. It is for
// tests in a time of their own; end waits until the WebSocket is closed.
func (s *server) over(t *testing.T, here, there net.Conn, init string) (c *client, end func()) {
	t.Helper()
	connections := make(piped)
	server := &http.Server{Handler: s.handler}
	go func() { _ = server.Serve(connections) }()
	connections <- there
	dialer := websocket.Dialer{Subprotocols: []string{subprotocol}, NetDialContext: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
	conn, response, err := dialer.DialContext(t.Context(), "ws://localhost", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	c = &client{conn}
	c.send(t, init)
	c.want(t, `{"type":"connection_ack"}`)
	return c, func() {
		_, _ = here.Close(), server.Close()
		s.awaitSockets()
	}
}

// A message that has to wait for a long one is sent after it, however long that takes.
func TestWebSocketMessagesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHandler(t, func(_ *Config, schema *fakeSchema) {
			schema.fields["hello"] = func(context.Context) (any, error) { return strings.Repeat("x", 4<<20), nil }
		})
		here, there := net.Pipe()
		c, end := s.over(t, here, there, initMessage)
		defer end()
		c.send(t, subscribeMessage("long", "{hello}"))
		synctest.Wait()
		c.send(t, subscribeMessage("short", "{__typename}"))
		time.Sleep(15 * time.Second)
		c.send(t, `{"type":"ping"}`) // it is there
		types := map[string]int{}
		for range 5 {
			_, text, err := c.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			var m struct{ ID, Type string }
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			types[m.Type+" "+m.ID]++
		}
		if want := map[string]int{"next long": 1, "complete long": 1, "next short": 1, "complete short": 1, "pong ": 1}; !maps.Equal(types, want) {
			t.Errorf("messages %v", types)
		}
	})
}

// Of what a client sends after its WebSocket was closed, little is read, and not for long.
func TestWebSocketThatSendsOn(t *testing.T) {
	for name, rest := range map[string]int{"all the time": 64 << 20, "and stops within a message": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHandler(t, nil)
				here, there := net.Pipe()
				c, end := s.over(t, here, there, initMessage)
				defer end()
				c.SetCloseHandler(func(int, string) error { return nil }) // no answer to that
				begun := time.Now()
				c.send(t, initMessage) // once more
				sent := make(chan int)
				go func() {
					n, _ := here.Write(append(frame(0x82, true, make([]byte, 128<<20))[:14], make([]byte, rest)...))
					sent <- n
				}()
				if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, closeInitTwice) {
					t.Error(err)
				}
				if _, err := io.Copy(io.Discard, here); err != nil {
					t.Error(err)
				}
				if took, n := time.Since(begun), <-sent; took > time.Second || n > 4<<20 {
					t.Errorf("%d bytes were read, and the connection was closed after %v", n, took)
				}
			})
		})
	}
}

// gone is a connection whose client has gone: what it has sent can still be read.
type gone struct {
	net.Conn

	sent *bytes.Reader // nil: the client is there
}

func (g *gone) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.sent != nil {
		return g.sent.Read(p)
	}
	return n, err
}

func (g *gone) Write(p []byte) (int, error) {
	if g.sent != nil {
		return 0, io.ErrClosedPipe
	}
	return g.Conn.Write(p)
}

// What a client has sent before it left is not executed to its end.
func TestWebSocketOfWhoHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var executed atomic.Int64
		s := newHandler(t, func(_ *Config, schema *fakeSchema) {
			schema.fields["hello"] = func(context.Context) (any, error) { executed.Add(1); return "", nil }
		})
		here, there := net.Pipe()
		conn := &gone{Conn: there}
		_, end := s.over(t, here, conn, initMessage)
		synctest.Wait()
		const sent = 10_000
		var texts []string
		for i := range sent {
			texts = append(texts, subscribeMessage(fmt.Sprint(i), "{hello}"))
		}
		conn.sent = bytes.NewReader(messages(texts...))
		end()
		if n := executed.Load(); n > sent/10 {
			t.Errorf("%d of %d operations were executed", n, sent)
		}
	})
}

// Long messages count for several.
func TestWebSocketMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHandler(t, nil)
		here, there := net.Pipe()
		c, end := s.over(t, here, there, initMessage)
		defer end()
		begun := time.Now()
		const size = 100 << 10
		for range 10 * messageRate * messageSize / size {
			c.send(t, `{"type":"pong","payload":{"a":"`+strings.Repeat("a", size)+`"}}`)
		}
		if took := time.Since(begun); took < 7*time.Second {
			t.Errorf("ten seconds' messages were taken in %v", took)
		}
	})
}

// Credentials are looked at again for each operation; new ones can be sent meanwhile, and those
// of somebody else not.
func TestWebSocketCredentials(t *testing.T) {
	expired := &Denied{Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Message: "the token has expired"}
	const renewal = `{"type":"ping","payload":{"authorization":"%s"}}`
	for name, test := range map[string]struct {
		refused *Denied // from now on
		renewal string  // credentials that are sent before; "": none
		code    int     // with which the connection is closed at the next operation; 0: it is not
		reason  string
	}{
		"the same":               {nil, "", 0, ""},
		"expired":                {expired, "", 4403, "Forbidden: the token has expired"},
		"cannot be verified":     {&Denied{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: "later"}, "", 1013, "later"},
		"expired, with new ones": {expired, "new good", 0, ""},
		"with somebody else's":   {nil, "other", 4403, "Forbidden: another identity needs another connection"},
		"with those of nobody":   {nil, "bad", 4403, "Forbidden: credentials are needed"},
		"expired, with the same": {expired, "good", 4403, "Forbidden: the token has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Pointer[Denied]
			s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Identify = identified(&refused) })
			c := s.connect(t, `{"authorization":"good"}`)
			operation := func(id string) {
				c.send(t, subscribeMessage(id, "mutation {change}"))
			}
			operation("1")
			c.receive(t)
			c.want(t, `{"type":"complete","id":"1"}`)
			refused.Store(test.refused)
			if test.renewal != "" {
				c.send(t, fmt.Sprintf(renewal, test.renewal))
			}
			operation("2")
			if test.code == 0 {
				c.receive(t)
				c.want(t, `{"type":"complete","id":"2"}`)
				return
			}
			c.wantClosed(t, test.code, test.reason)
		})
	}
}

// They are looked at again with each ping, too; while they cannot be verified, nothing happens.
func TestWebSocketCredentialsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Pointer[Denied]
		s := newHandler(t, func(cfg *Config, _ *fakeSchema) { cfg.Identify = identified(&refused) })
		here, there := net.Pipe()
		c, end := s.over(t, here, there, `{"type":"connection_init","payload":{"authorization":"good"}}`)
		defer end()
		refused.Store(&Denied{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: "later"})
		for range 3 {
			if _, text, err := c.ReadMessage(); err != nil || !strings.Contains(string(text), `"ping"`) {
				t.Fatal(err)
			}
			c.send(t, `{"type":"pong"}`)
		}
		refused.Store(&Denied{Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Message: "the token has expired"})
		c.wantClosed(t, 4403, "Forbidden: the token has expired")
	})
}
