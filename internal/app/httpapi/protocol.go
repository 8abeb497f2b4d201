package httpapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// subprotocol is the only one that is spoken (graphql-transport-ws, as its
// specification in the repository enisdenjo/graphql-ws has it); the older graphql-ws is
// not.
const subprotocol = "graphql-transport-ws"

// Why a WebSocket is closed, as the protocol has it: an error of the protocol ends the
// connection at once.
const (
	closeInvalid      = 4400 // a message that cannot be read
	closeUnauthorized = 4401 // an operation before connection_init
	closeForbidden    = 4403 // the actor of connection_init is refused
	closeInitTimeout  = 4408 // no connection_init in time
	closeTwice        = 4409 // the id of an operation that is not complete
	closeInitTwice    = 4429 // a second connection_init
)

// violation is a message against the protocol.
type violation struct {
	code   int
	reason string
}

// longestReason is how many bytes the reason of a close frame may have.
const longestReason = 123

// Error returns the reason.
func (v *violation) Error() string { return v.reason }

// text returns the reason, clipped to what a close frame may have.
func (v *violation) text() string {
	if len(v.reason) <= longestReason {
		return v.reason
	}
	return strings.ToValidUTF8(v.reason[:longestReason], "")
}

// The types of messages.
const (
	messageInit      = "connection_init"
	messageAck       = "connection_ack"
	messageSubscribe = "subscribe"
	messageNext      = "next"
	messageError     = "error"
	messageComplete  = "complete"
	messagePing      = "ping"
	messagePong      = "pong"
)

// longestID is how many bytes an operation's id may have.
const longestID = 1 << 10

// message is a client's message.
type message struct {
	Type    string         `json:"type"`
	ID      string         `json:"id"`
	Payload jsontext.Value `json:"payload"`
}

// messageText is a message to a client around its payload, which is written as it is and
// may have several parts; none: there is no payload.
func messageText(kind, id string, payload answerText) answerText {
	if payload.length() == 0 {
		payload.before = []byte{'{'}
	} else {
		payload.before = append([]byte(`{"payload":`), payload.before...)
		payload.after = append(payload.after, ',')
	}
	if id != "" {
		payload.after, _ = jsontext.AppendQuote(append(payload.after, `"id":`...), id) // it was valid when it came
		payload.after = append(payload.after, ',')
	}
	payload.after = append(append(append(payload.after, `"type":"`...), kind...), `"}`...)
	return payload
}

// readMessage reads a client's message.
func readMessage(text []byte) (message, error) {
	bad := func(reason string) (message, error) { return message{}, &violation{closeInvalid, reason} }
	var m message
	if p := (jsonText{what: "the message", like: `{"type": "ping"}`, list: "send one message at a time"}).read(text, &m); p != nil {
		return bad(p.message)
	}
	isObject := len(m.Payload) > 0 && m.Payload[0] == '{'
	switch m.Type {
	case messageInit, messagePing, messagePong:
		if len(m.Payload) > 0 && !isObject && string(m.Payload) != "null" {
			return bad("the payload of " + m.Type + " must be an object")
		}
	case messageSubscribe, messageComplete:
		if m.ID == "" || len(m.ID) > longestID {
			return bad(`a message of the type ` + m.Type + ` must have an "id", which is not empty and has at most 1024 bytes`)
		}
		if m.Type == messageComplete {
			break
		}
		if !isObject {
			return bad(`the payload of subscribe must be an object such as {"query": "{ __typename }"}`)
		}
	default:
		return bad(`the "type" of a message must be connection_init, subscribe, complete, ping or pong`)
	}
	return m, nil
}

// withPayload adds the credentials of a payload as headers, where the upgrade had none
// of that name: scripts in browsers cannot set headers of an upgrade. What is no
// string is an empty header, so that nobody is taken for somebody else by mistake.
func withPayload(r *http.Request, payload []byte) *http.Request {
	var members map[string]any
	_ = json.Unmarshal(payload, &members) // readMessage has looked at it
	for name := range members {
		header := http.CanonicalHeaderKey(name)
		if (header == "Authorization" || header == "X-Actor") && r.Header.Get(header) == "" {
			value, _ := members[name].(string)
			r.Header.Set(header, value)
		}
	}
	return r
}

// checkSocket refuses what cannot become a WebSocket of this API.
func (h *Handler) checkSocket(r *http.Request) *problem {
	bad := func(message string) *problem {
		return &problem{http.StatusBadRequest, codeBadInput, message}
	}
	switch {
	case r.Method != http.MethodGet || !mentions(r.Header, "Upgrade", "websocket") || !mentions(r.Header, "Connection", "upgrade"):
		return bad("only an upgrade to a WebSocket is supported")
	case r.Header.Get("Sec-Websocket-Version") != "13" || r.Header.Get("Sec-Websocket-Key") == "":
		return bad("this is not a WebSocket handshake of version 13")
	case !mentions(r.Header, "Sec-Websocket-Protocol", subprotocol):
		return bad("the WebSocket must offer the subprotocol " + subprotocol)
	}
	if h.mayUse(r) {
		return nil
	}
	return &problem{http.StatusForbidden, CodeForbidden, fmt.Sprintf("pages of %s may not use this API (see --cors-origin)", r.Header.Get("Origin"))}
}

// mentions reports whether a header that is a list holds a token.
func mentions(header http.Header, name, token string) bool {
	for _, line := range header[name] {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// taken is a ResponseWriter that keeps the connection that is taken from it.
type taken struct {
	http.ResponseWriter

	conn *socketConn
}

// Hijack is http.Hijacker's.
func (t *taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.conn = &socketConn{Conn: conn, left: lastBytes}
	buffers.Writer.Reset(t.conn) // who is given it has only the reader reset
	return t.conn, buffers, nil
}

const (
	// lastWords is how long a client may take to hear why its WebSocket is closed.
	lastWords = 500 * time.Millisecond
	// lastBytes is how much of what it sends meanwhile is taken from the connection. As
	// long as there is more, the system tells the client that the connection was reset,
	// instead of what it was sent.
	lastBytes = 2 << 20
)

// socketConn is the connection under a WebSocket.
type socketConn struct {
	net.Conn

	ending atomic.Bool
	left   int         // of lastBytes; used by Read alone
	more   atomic.Bool // what is written is kept for the next Write
	kept   []byte      // used by Write alone
}

// end lets the library read on for a while, until the client closes the connection, too.
func (c *socketConn) end() {
	_ = c.SetReadDeadline(deadline(lastWords))
	c.ending.Store(true)
}

// Read reads, and little once the connection is ending.
func (c *socketConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.ending.Load() {
		if c.left -= n; c.left < 0 {
			return 0, io.EOF
		}
	}
	return n, err
}

// Write writes with what was kept, or keeps it. The library calls it for one frame at a time.
func (c *socketConn) Write(p []byte) (int, error) {
	switch {
	case c.more.Load():
		c.kept = append(c.kept, p...)
		return len(p), nil
	case c.kept == nil:
		return c.Conn.Write(p)
	}
	text := append(c.kept, p...)
	c.kept = nil
	n, err := c.Conn.Write(text)
	return max(n-len(text)+len(p), 0), err
}
