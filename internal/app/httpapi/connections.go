package httpapi

import (
	"net"

	"github.com/asof/asof/internal/app/admission"
)

// BoundConnections returns a listener of which so many connections may be open, half of them
// of one client, which the function names by its address. Others are told that there are too
// many, and closed.
func BoundConnections(l net.Listener, most int64, client func(address string) string) net.Listener {
	return &boundListener{l, admission.NewBudget(most, 0), client}
}

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
		if place.Grow(1) == nil {
			return &boundConn{c, place}, nil
		}
		_, _ = c.Write([]byte(tooManyConnections)) // its buffer is empty
		_ = c.Close()
	}
}

const tooManyConnections = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

type boundConn struct {
	net.Conn

	place *admission.Hold
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
