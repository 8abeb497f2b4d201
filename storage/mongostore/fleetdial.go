package mongostore

import (
	"context"
	"net"
	"sync/atomic"
)

// dialer makes connections that are reset when they are closed: what was sent
// on them and has not left this machine yet is thrown away. Otherwise the system
// would go on sending it, for minutes where the network is interrupted, and a
// command that was given up long ago would still be carried out. A connection on
// which the time of a command was up is closed by the driver 400 ms later (v2.9:
// it waits for a late answer that long), one whose context was canceled at once.
// It counts what comes on them.
type dialer struct{ heard atomic.Int64 }

// DialContext implements options.ContextDialer.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			_ = conn.Close()
			return nil, err
		}
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
