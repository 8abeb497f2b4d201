package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
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

// A client has half of the connections that others leave, and all have no more than there are.
func TestConnectionsAreBounded(t *testing.T) {
	connections := make(piped, 10)
	l := BoundConnections(&http.Server{}, connections, 8*connectionBytes, func(address string) string { return address })
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
	const a, b, c, d = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"
	come(a, a, a, a, a, b, b, b, c)
	last := accept(a, a, a, a, b, b, c) // the fifth, and the third, are too many
	_, _ = last.Close(), last.Close()
	come(c)
	accept(c)
	refused := &from{client: d}
	connections <- refused
	_ = connections.Close()
	if c, err := l.Accept(); err == nil {
		t.Fatalf("one of %s is accepted", c.RemoteAddr())
	}
	if diff := cmp.Diff([]string{tooManyConnections, "closed"}, refused.said); diff != "" {
		t.Errorf("a refused client gets (-want +got):\n%s", diff)
	}
}

// What a header takes counts until its request was handled, and a short one is still read
// beside those of a client that has spent its share. One of many lines is refused, wherever they
// are cut, and a body of many lines is not.
func TestHeadersAreCounted(t *testing.T) {
	handling, handled := make(chan bool), make(chan bool)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			handling <- true
			<-handled
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
	}), MaxHeaderBytes: 64 << 10}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const long = "GET / HTTP/1.1\r\nHost: a\r\n"
	lines := "a: " + strings.Repeat("x", 40<<10) + "\r\n"
	l := BoundConnections(server, inner, 3*headerFactor*int64(len(lines)), func(string) string { return "one client" })
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	dial := func(text string) net.Conn {
		t.Helper()
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	status := func(c net.Conn) int {
		t.Helper()
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode
	}
	open := l.(*boundListener).open
	idle := func() {
		for open.Held() > 3*connectionBytes { // of those that are open
			runtime.Gosched()
		}
	}
	first := dial(long + lines)
	held := connectionBytes + headerFactor*int64(len(long+lines)-freeHeader)
	for open.Held() < held {
		runtime.Gosched()
	}
	// The answer is lost where the connection is reset, as not all was read that had come.
	if r, err := http.ReadResponse(bufio.NewReader(dial(long+lines)), nil); err == nil && r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second long header: %d", r.StatusCode)
	}
	for open.Held() > held { // the second is closed when it was answered
		runtime.Gosched()
	}
	if got := status(dial(long + "\r\n")); got != http.StatusOK {
		t.Errorf("a short header beside a long one: %d", got)
	}
	if _, err := first.Write([]byte("\r\n")); err != nil {
		t.Fatal(err)
	}
	if got := status(first); got != http.StatusOK {
		t.Errorf("the long header: %d", got)
	}
	idle()
	if _, err := first.Write([]byte(strings.Replace(long, "/", "/wait", 1) + lines + "\r\n")); err != nil {
		t.Fatal(err)
	}
	<-handling
	if held = open.Held(); held < headerFactor*int64(len(lines)-freeHeader) {
		t.Errorf("a long header holds %d bytes while its request is handled", held)
	}
	handled <- true
	if got := status(first); got != http.StatusOK {
		t.Errorf("the long header again: %d", got)
	}
	idle()
	short := strings.Repeat("a:b\r\n", mostLines-3) + fmt.Sprintf("Content-Length: %d\r\n\r\n", 2*mostLines) + strings.Repeat("\n", 2*mostLines)
	for range 2 {
		if _, err := first.Write([]byte(long + short)); err != nil {
			t.Fatal(err)
		}
		if got := status(first); got != http.StatusOK {
			t.Errorf("a header of %d lines with a body of more: %d", mostLines, got)
		}
	}
	if got := status(dial(long + "a:b\r\n" + short)); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of %d lines: %d", mostLines+1, got)
	}
}
