package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql/handler/transport"
	coderws "github.com/coder/websocket"
)

// sockets accepts WebSockets whose messages must be JSON in valid UTF-8, as the
// bodies of requests must be: decoding would replace what is not silently, and
// it could then be stored.
// A client that takes nothing is dropped: its answers would hold the places of
// their operations.
type sockets struct {
	options  coderws.AcceptOptions
	patience time.Duration // to send a message
	now      func() time.Time
	answers  *answers      // of the connection
	talk     *conversation // of the connection
	opened   **socket      // is set when the request has been upgraded
}

// Accept upgrades a request.
func (s sockets) Accept(w http.ResponseWriter, r *http.Request, _ transport.WebsocketAcceptOptions) (transport.WebsocketConn, error) {
	conn, err := coderws.Accept(w, r, &s.options)
	if err != nil {
		return nil, err
	}
	*s.opened = &socket{sockets: s, conn: conn}
	return *s.opened, nil
}

// socket is an open WebSocket.
type socket struct {
	sockets
	conn     *coderws.Conn
	mu       sync.Mutex
	deadline *time.Timer // of reading
	closing  bool        // the close frame is being sent
}

var _ interface {
	transport.WebsocketConn
	transport.WebsocketReadLimiter
	transport.WebsocketReadDeadliner
} = (*socket)(nil)

// NextReader reads the next message that the transport has to know of.
func (c *socket) NextReader() (int, io.Reader, error) {
	for {
		kind, text, err := c.conn.Read(context.Background())
		if err != nil {
			switch coderws.CloseStatus(err) {
			case coderws.StatusNormalClosure, coderws.StatusNoStatusRcvd:
				err = transport.ErrWebsocketClosed
			default: // as it is
			}
			return int(kind), nil, err
		}
		m, wrong := readMessage(text)
		wanted := false
		if wrong == nil {
			m, wanted, wrong = c.talk.received(m)
		}
		switch {
		case wrong != nil: // gqlgen's transport would call it a normal closure, or go on
			c.talk.end()
			return int(kind), nil, errors.Join(errors.New(wrong.reason), c.WriteClose(wrong.code, wrong.text()))
		case wanted:
			given, err := json.Marshal(m)
			return int(kind), bytes.NewReader(given), err
		case m.Type == messagePing: // before the beginning, which the transport waits for
			if err := c.write(message{Type: messagePong, Payload: m.Payload}); err != nil {
				return int(kind), nil, err
			}
		}
	}
}

// WriteJSON sends a message of the transport's, with the answer that a stand-in in
// it names.
func (c *socket) WriteJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	m.Payload = c.answers.fill(m.Payload)
	m, wanted := c.talk.sent(m)
	if !wanted {
		return nil
	}
	return c.write(m)
}

func (c *socket) write(m message) error {
	late := time.AfterFunc(c.patience, func() { _ = c.conn.CloseNow() }) // its error is that of writing
	defer late.Stop()
	return c.conn.Write(context.Background(), coderws.MessageText, m.text())
}

// WriteClose says goodbye, which waits for the client's answer, in the
// background.
func (c *socket) WriteClose(code int, message string) error {
	if code == transport.WebsocketCloseProtocolError && !c.talk.hasBegun() {
		code, message = closeInitTimeout, "Connection initialisation timeout" // as the protocol says it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopDeadline()
	if !c.closing {
		c.closing = true
		go func() { _ = c.conn.Close(coderws.StatusCode(code), message) }()
	}
	return nil
}

// Close drops the connection, unless it is being closed.
func (c *socket) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopDeadline()
	if c.closing {
		return nil
	}
	return c.conn.CloseNow()
}

// Subprotocol is what was agreed on.
func (c *socket) Subprotocol() string { return c.conn.Subprotocol() }

// SetReadLimit bounds a message.
func (c *socket) SetReadLimit(limit int64) { c.conn.SetReadLimit(limit) }

// SetReadDeadline bounds the wait for a message; the zero time lifts that.
func (c *socket) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopDeadline()
	if !t.IsZero() {
		c.deadline = time.AfterFunc(t.Sub(c.now()), func() { _ = c.conn.CloseNow() }) // its error is that of reading
	}
	return nil
}

func (c *socket) stopDeadline() {
	if c.deadline != nil {
		c.deadline.Stop()
		c.deadline = nil
	}
}
