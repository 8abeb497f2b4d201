package mongostore

import (
	"io"
	"net"
	"testing"
	"time"
)

// What was sent on a connection that is closed, and the server has not taken, is
// not delivered any more.
func TestClosedConnectionDeliversNothing(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	client, err := dialer{}.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	if err := client.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	sent, err := client.Write(make([]byte, 64<<20))
	if err == nil {
		t.Fatalf("%d bytes were taken, and nobody read", sent)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if delivered, err := io.Copy(io.Discard, server); err == nil || delivered >= int64(sent) {
		t.Errorf("%d bytes of %d were delivered: %v", delivered, sent, err)
	}
}
