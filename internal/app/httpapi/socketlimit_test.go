package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
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

// One connection cannot take all places; others get theirs.
func TestWebSocketOperationsLimit(t *testing.T) {
	var begun, ended chan bool
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Concurrent, cfg.Limits.PerSocket = 3, 2
		cfg.Limits.Wait = 10 * time.Millisecond
		begun, ended = blocking(schema)
	})
	c := s.connect(t, `{}`)
	for i := range 2 {
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"%d","payload":{"query":"{block}"}}`, i))
		<-begun
	}
	c.send(t, `{"type":"subscribe","id":"third","payload":{"query":"{hello}"}}`)
	if got := c.receive(t); !strings.Contains(got, CodeUnavailable) || !strings.Contains(got, "this connection has 2 operations running") {
		t.Errorf("a third operation: %s", got)
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

// A message that has to wait for a long one is sent after it, however long that takes.
func TestWebSocketMessagesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHandler(t, func(_ *Config, schema *fakeSchema) {
			schema.fields["hello"] = func(context.Context) (any, error) { return strings.Repeat("x", 4<<20), nil }
		})
		connections := make(piped)
		server := &http.Server{Handler: s.handler}
		go func() { _ = server.Serve(connections) }()
		here, there := net.Pipe()
		connections <- there
		dialer := websocket.Dialer{Subprotocols: []string{subprotocol}, NetDialContext: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
		conn, response, err := dialer.DialContext(t.Context(), "ws://localhost", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		c := &client{conn}
		c.send(t, initMessage)
		c.want(t, `{"type":"connection_ack"}`)
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
		_, _ = here.Close(), server.Close()
	})
}
