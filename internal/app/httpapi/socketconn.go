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
	answers  *answers // of the connection
	opened   **socket // is set when the request has been upgraded
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

// closeInvalid is graphql-transport-ws's code for a message that it cannot read.
const closeInvalid = 4400

// NextReader reads a message.
func (c *socket) NextReader() (int, io.Reader, error) {
	kind, text, err := c.conn.Read(context.Background())
	if err != nil {
		switch coderws.CloseStatus(err) {
		case coderws.StatusNormalClosure, coderws.StatusNoStatusRcvd:
			err = transport.ErrWebsocketClosed
		default: // as it is
		}
		return int(kind), nil, err
	}
	if reason := refusalOf(text); reason != "" {
		const longest = 123 // bytes in a close frame
		if len(reason) > longest {
			reason = reason[:longest]
		}
		return int(kind), nil, errors.Join(errors.New(reason), c.WriteClose(closeInvalid, reason))
	}
	return int(kind), bytes.NewReader(text), nil
}

// refusalOf says why a text is no message of a client; "": it is one. gqlgen's
// transport would call it a normal closure.
func refusalOf(text []byte) string {
	if p := checkJSON(text, "the message"); p != nil {
		return p.message
	}
	var message struct{ Type, ID any }
	if err := json.Unmarshal(text, &message); err != nil {
		return err.Error() // valid JSON always decodes
	}
	kind, isText := message.Type.(string)
	if _, hasText := message.ID.(string); message.ID != nil && !hasText {
		return `the "id" of a message must be a string`
	}
	switch {
	case message.Type == nil:
		return `the message has no "type"`
	case !isText:
		return `the "type" of a message must be a string`
	case kind == "subscribe", kind == "complete", kind == "ping", kind == "pong":
		return ""
	case kind != "connection_init":
		return `the "type" of a message must be connection_init, subscribe, complete, ping or pong`
	}
	var beginning struct{ Payload map[string]any }
	if json.Unmarshal(text, &beginning) != nil {
		return "the payload of connection_init must be an object"
	}
	return ""
}

// WriteJSON sends a message, with the answer that a stand-in in it names.
func (c *socket) WriteJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	late := time.AfterFunc(c.patience, func() { _ = c.conn.CloseNow() }) // its error is that of writing
	defer late.Stop()
	return c.conn.Write(context.Background(), coderws.MessageText, c.answers.fill(text))
}

// WriteClose says goodbye, which waits for the client's answer, in the
// background.
func (c *socket) WriteClose(code int, message string) error {
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
