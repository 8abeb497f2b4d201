package httpapi

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// from is a connection of a client that records what is written to it.
type from struct {
	net.Conn

	client string
	said   []string
}

func (f *from) RemoteAddr() net.Addr {
	return &net.UnixAddr{Name: f.client}
}

func (f *from) Write(p []byte) (int, error) {
	f.said = append(f.said, string(p))
	return len(p), nil
}

func (f *from) Close() error {
	f.said = append(f.said, "closed")
	return nil
}

// A client has half of the connections, and all have no more than there are.
func TestConnectionsAreBounded(t *testing.T) {
	connections := make(piped, 10)
	l := BoundConnections(connections, 4, func(address string) string { return address })
	come := func(clients ...string) {
		for _, client := range clients {
			connections <- &from{client: client}
		}
	}
	accept := func(clients ...string) (last net.Conn) {
		t.Helper()
		for _, client := range clients {
			var err error
			if last, err = l.Accept(); err != nil || last.RemoteAddr().String() != client {
				t.Fatalf("%v, %v; want one of %s", last, err, client)
			}
		}
		return last
	}
	come("192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2")
	c := accept("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2") // the third is too many
	_, _ = c.Close(), c.Close()
	come("192.0.2.3")
	accept("192.0.2.3")
	refused := &from{client: "192.0.2.4"}
	connections <- refused
	_ = connections.Close()
	if c, err := l.Accept(); err == nil {
		t.Fatalf("one of %s is accepted", c.RemoteAddr())
	}
	if diff := cmp.Diff([]string{tooManyConnections, "closed"}, refused.said); diff != "" {
		t.Errorf("a refused client gets (-want +got):\n%s", diff)
	}
}
