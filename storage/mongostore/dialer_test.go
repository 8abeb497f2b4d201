package mongostore

import (
	"io"
	"net"
	"testing"
)

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
