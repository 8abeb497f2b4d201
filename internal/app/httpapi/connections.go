package httpapi

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/asof/asof/internal/app/admission"
)

// Of each open connection, these bytes count, and headerFactor for each byte of a header
// beyond freeHeader until its request was handled, also as a stream or a WebSocket. A header has
// at most mostLines: each takes as much processor time and memory as some hundred bytes.
const (
	connectionBytes = 16 << 10
	headerFactor    = 4
	freeHeader      = 4 << 10
	mostLines       = 100
)

// BoundConnections returns a listener for a server, of which open connections may take so
// many bytes, half of them those of one client, which the function names by its address.
// Others get the answer that there are too many, and are closed. The server's Handler is set before.
func BoundConnections(server *http.Server, l net.Listener, bytes int64, client func(address string) string) net.Listener {
	next := server.Handler
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*boundConn); ok && state == http.StateHijacked {
			c.taken.Store(true)
		}
	}
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*boundConn); ok {
			c.handle(func() { next.ServeHTTP(w, r) })
			return
		}
		next.ServeHTTP(w, r)
	})
	return &boundListener{l, admission.NewBudget(bytes, 0), client}
}

type connectionKey struct{}

type boundListener struct {
	net.Listener

	open   *admission.Budget
	client func(address string) string
}

// Accept waits for the next connection.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		place := l.open.Hold(l.client(c.RemoteAddr().String()))
		if place.Grow(connectionBytes) == nil {
			return &boundConn{Conn: c, place: place}, nil
		}
		_, _ = c.Write([]byte(tooManyConnections)) // its buffer is empty
		_ = c.Close()
	}
}

const tooManyLines = "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

const tooManyConnections = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

type boundConn struct {
	net.Conn

	place  *admission.Hold
	taken  atomic.Bool  // it is no more HTTP's: a WebSocket's
	header atomic.Int64 // bytes that came since a request was handled; far below 0 while one is
	closed atomic.Bool
	lines  int  // of the header, so far; used by Read alone
	blank  bool // its last line has nothing so far
}

// handle handles a request, whose body is counted elsewhere.
func (c *boundConn) handle(request func()) {
	long := c.header.Swap(math.MinInt64/2) > freeHeader
	request()
	if c.taken.Load() {
		return
	}
	if long {
		c.place.Set(connectionBytes)
		if c.closed.Load() { // meanwhile
			c.place.Set(0)
		}
	}
	c.header.Store(0)
}

// Read reads, and ends the connection where its header takes more than there is, or has too
// many lines.
func (c *boundConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	came := c.header.Add(int64(n))
	refused := ""
	if more := min(int64(n), came-freeHeader); more > 0 && c.place.Grow(more*headerFactor) != nil {
		refused = tooManyConnections
	}
	if came == int64(n) {
		c.lines, c.blank = 0, false
	}
	if came > 0 && c.hasManyLines(p[:n]) {
		refused = tooManyLines
	}
	if refused == "" {
		return n, err
	}
	_, _ = c.Write([]byte(refused))
	_ = c.Close() // an error of one Read may be passed over
	return 0, io.EOF
}

// hasManyLines reports whether a header has more lines than it may, with this part of it, which
// the body may follow.
func (c *boundConn) hasManyLines(text []byte) bool {
	for _, b := range text {
		switch {
		case c.lines < 0 || c.lines > mostLines || b == '\r':
		case b != '\n':
			c.blank = false
		case c.blank:
			c.lines = -1 // the body follows
		default:
			c.lines++
			c.blank = true
		}
	}
	return c.lines > mostLines
}

// Close closes the connection, which counts no more.
func (c *boundConn) Close() error {
	c.closed.Store(true)
	c.place.Set(0)
	return c.Conn.Close()
}

// CloseWrite shuts down the writing side, where there is one: http.Server asks for it before
// it closes a connection whose client may still be sending.
func (c *boundConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
