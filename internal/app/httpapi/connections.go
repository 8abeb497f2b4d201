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
// beyond freeHeader until its request is handled: many short lines take so much.
const (
	connectionBytes = 16 << 10
	headerFactor    = 16
	freeHeader      = 4 << 10
)

// BoundConnections returns a listener for a server, of which open connections may take so
// many bytes, half of them those of one client, which the function names by its address.
// Others are told that there are too many, and closed. The server's Handler is set before.
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

const tooManyConnections = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

type boundConn struct {
	net.Conn

	place  *admission.Hold
	taken  atomic.Bool  // it is no more HTTP's: a WebSocket's
	header atomic.Int64 // bytes that came since a request was handled; far below 0 while one is
}

// handle handles a request, whose body is counted elsewhere.
func (c *boundConn) handle(request func()) {
	if c.header.Swap(math.MinInt64/2) > freeHeader {
		c.place.Set(connectionBytes)
	}
	request()
	if !c.taken.Load() {
		c.header.Store(0)
	}
}

// Read reads, and ends the connection where its header takes more than there is.
func (c *boundConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if more := min(int64(n), c.header.Add(int64(n))-freeHeader); more > 0 && c.place.Grow(more*headerFactor) != nil {
		_, _ = c.Write([]byte(tooManyConnections))
		_ = c.Close() // an error of one Read may be passed over
		return 0, io.EOF
	}
	return n, err
}

// Close closes the connection, which counts no more.
func (c *boundConn) Close() error {
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
