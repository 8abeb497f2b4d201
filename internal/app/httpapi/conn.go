package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// net/http writes an answer that is longer than its buffer of 4 KB in two or
// more system calls, which wake the client as often. The connections of this
// file can hold back what is written, so that an answer whose end is known is
// written at once.

// mostHeld is how many bytes a connection holds back. What is longer takes
// several writes however it is written.
const mostHeld = 64 << 10

// Gather returns a listener whose connections can hold back what is written, for
// a server whose ConnContext is that of this package.
func Gather(l net.Listener) net.Listener { return &gathering{Listener: l} }

type gathering struct {
	net.Listener
	buffers sync.Pool // of *[]byte, of mostHeld bytes
}

// Accept waits for the next connection.
func (g *gathering) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatheringConn{Conn: c, buffers: &g.buffers}, nil
}

// ConnContext tells requests on which connection they came, as http.Server's.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

type connKey struct{}

// gatheringConn is a connection of one writer at a time.
type gatheringConn struct {
	net.Conn
	buffers *sync.Pool
	held    *[]byte // what is held back; nil: nothing may be
}

// hold holds back what is written until letGo.
func (c *gatheringConn) hold() {
	buf, _ := c.buffers.Get().(*[]byte)
	if buf == nil {
		made := make([]byte, 0, mostHeld)
		buf = &made
	}
	c.held = buf
}

// letGo writes what was held back.
func (c *gatheringConn) letGo() error {
	buf := c.held
	c.held = nil
	var err error
	if len(*buf) > 0 {
		_, err = c.Conn.Write(*buf)
	}
	*buf = (*buf)[:0]
	c.buffers.Put(buf)
	return err
}

// Write writes, or holds back. What would be too much to hold is written behind
// what is held.
func (c *gatheringConn) Write(p []byte) (int, error) {
	if c.held == nil {
		return c.Conn.Write(p)
	}
	if held := *c.held; len(held)+len(p) > cap(held) {
		*c.held = held[:0]
		if len(held) > 0 {
			if _, err := c.Conn.Write(held); err != nil {
				return 0, err
			}
		}
		return c.Conn.Write(p)
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

// CloseWrite shuts down the writing side, where there is one: http.Server asks
// for it before it closes a connection whose client may still be sending.
func (c *gatheringConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// shortAnswer is the length of a body, in bytes, up to which net/http's buffers
// have room for all of an answer, which it measures.
const shortAnswer = 2<<10 - 1

// writeAtOnce writes a whole answer, whose length is in the header unless it is
// short: in one write where the connection can, and w is net/http's own.
func writeAtOnce(r *http.Request, w http.ResponseWriter, status int, body []byte) error {
	w.WriteHeader(status)
	var c *gatheringConn
	if len(body) > shortAnswer {
		if _, wrapped := w.(interface{ Unwrap() http.ResponseWriter }); !wrapped {
			c, _ = r.Context().Value(connKey{}).(*gatheringConn)
		}
	}
	flusher, ok := w.(http.Flusher)
	if c == nil || !ok {
		_, err := w.Write(body)
		return err
	}
	c.hold()
	_, err := w.Write(body)
	flusher.Flush() // into the connection
	if failed := c.letGo(); failed != nil {
		err = errors.Join(err, failed, abandon(w))
	}
	return err
}

// abandon closes a connection on which an answer was broken off. net/http did
// not see that, and would execute the next request and write its answer behind
// what there is of this one, where the client takes it for the rest.
func abandon(w http.ResponseWriter) error {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	return c.Close()
}
