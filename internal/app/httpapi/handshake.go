package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// withPayload adds the strings of a connection_init payload as headers, where
// the upgrade had none of that name: scripts in browsers cannot set headers
// of an upgrade.
func withPayload(r *http.Request, payload map[string]any) *http.Request {
	for name := range payload {
		if value, _ := payload[name].(string); value != "" && r.Header.Get(name) == "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

// checkSocket refuses what cannot become a WebSocket of this API.
func (h *Handler) checkSocket(r *http.Request) *problem {
	bad := func(message string) *problem {
		return &problem{http.StatusBadRequest, CodeBadInput, message}
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
	t.conn = &socketConn{Conn: conn}
	return t.conn, buffers, err
}

// socketConn is the connection under a WebSocket.
type socketConn struct {
	net.Conn

	ending atomic.Bool
}

const (
	// lastWords is how long a client may take to hear why its WebSocket is closed.
	lastWords = 500 * time.Millisecond
	// lastBytes is how much of what it sends meanwhile is taken from the connection. As
	// long as there is more, the system tells the client that the connection was reset,
	// instead of what it was sent.
	lastBytes = 2 << 20
)

// end makes the next Read the last.
func (c *socketConn) end() {
	_ = c.SetReadDeadline(deadline(lastWords))
	c.ending.Store(true)
}

// Read reads. When the connection is ending and the reason was sent, it discards what the
// client sends until that closes, too. The library would read on for five seconds,
// each byte by itself.
func (c *socketConn) Read(p []byte) (int, error) {
	if !c.ending.Load() {
		return c.Conn.Read(p)
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c.Conn, lastBytes)
	return 0, io.EOF
}
