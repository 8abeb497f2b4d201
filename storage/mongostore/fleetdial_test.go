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
	client, err := new(dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
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

// What comes from a server is heard, whatever it is, and silence is not.
func TestHeard(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	s := &Store{dialer: new(dialer)}
	client, err := s.dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	if _, err := client.Write([]byte("who are you?")); err != nil || s.Heard() != 0 {
		t.Errorf("%d bytes were heard from a server that said nothing: %v", s.Heard(), err)
	}
	if _, err := server.Write([]byte("me")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 2)); err != nil || s.Heard() != 2 {
		t.Errorf("%d bytes were heard, want 2: %v", s.Heard(), err)
	}
}
