package mongostore

import (
	"errors"
	"io"
	"net"
	"os"
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
	// Nobody reads, so that what is sent fills the buffers of the system, until
	// nothing is taken any more.
	chunk, sent := make([]byte, 1<<20), int64(0)
	for stuck := false; !stuck || sent == 0; {
		if err := client.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := client.Write(chunk)
		if sent += int64(n); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || sent >= 1<<30 {
			t.Fatalf("%d bytes were taken, and nobody read: %v", sent, err)
		}
		stuck = n == 0
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if delivered, err := io.Copy(io.Discard, server); err == nil || delivered >= sent {
		t.Errorf("%d bytes of %d were delivered: %v", delivered, sent, err)
	}
}
