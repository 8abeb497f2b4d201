package mongostore

import (
	"context"
	"net"
	"sync/atomic"
)

// dialer makes connections, and counts what comes on them.
type dialer struct{ heard atomic.Int64 }

// DialContext implements options.ContextDialer.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return heardConn{conn, &d.heard}, nil
}

type heardConn struct {
	net.Conn
	heard *atomic.Int64
}

// Read reads, and counts.
func (c heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard.Add(int64(n))
	return n, err
}

// Heard implements driver.Distant.
func (s *Store) Heard() int64 { return s.dialer.heard.Load() }
