package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// counted is a listener that counts what its connections are told to write.
type counted struct {
	net.Listener
	writes atomic.Int64
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l}, err
}

type countedConn struct {
	net.Conn
	of *counted
}

func (c countedConn) Write(p []byte) (int, error) {
	c.of.writes.Add(1)
	return c.Conn.Write(p)
}

// gathered serves a handler on connections that hold back.
func gathered(t *testing.T, h http.Handler) (*server, *counted) {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(h)}
	l := &counted{Listener: s.Listener}
	s.Listener, s.Config.ConnContext = Gather(l), ConnContext
	s.Start()
	t.Cleanup(s.Close)
	return s, l
}

// Answers leave in one write, and as they were, whatever their length.
func TestAnswersAreWrittenAtOnce(t *testing.T) {
	const before, after = `{"data":{"hello":"`, `"},"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`
	for _, c := range []struct{ length, writes int }{
		{100, 1},
		{shortAnswer - 1, 1},
		{shortAnswer, 1},
		{shortAnswer + 1, 1},
		{shortAnswer + 2, 1},
		{3_500, 1},
		{4_000, 1},
		{4_096, 1},
		{12_000, 1},
		{mostHeld - 1_000, 1},
		{mostHeld, 2},
		{300_000, 3},
	} {
		t.Run(fmt.Sprint(c.length), func(t *testing.T) {
			text := strings.Repeat("x", c.length-len(before)-len(after))
			api := newServer(t, func(_ *Config, schema *fakeSchema) {
				schema.fields["hello"] = func(context.Context) (any, error) { return text, nil }
			})
			s, l := gathered(t, api.handler)
			for range 3 { // on one connection
				written := l.writes.Load()
				got := s.query(t, `{hello}`)
				got.want(t, http.StatusOK, before+text+after)
				if n := l.writes.Load() - written; n > int64(c.writes) {
					t.Errorf("%d writes, want %d", n, c.writes)
				}
				if length := got.header.Get("Content-Length"); length != strconv.Itoa(c.length) {
					t.Errorf("Content-Length is %q", length)
				}
			}
		})
	}
}

// unwrapping is a ResponseWriter around another.
type unwrapping struct {
	http.ResponseWriter
	t *testing.T
}

func (u unwrapping) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func (u unwrapping) Flush() { u.t.Error("flushed") }

// A writer that changes what it is given, as one that compresses, is not made to
// pass on what it has before its end.
func TestWrappedWritersAreNotFlushed(t *testing.T) {
	s, _ := gathered(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := writeAtOnce(r, unwrapping{w, t}, http.StatusTeapot, make([]byte, 3_000)); err != nil {
			t.Error(err)
		}
		if r.Context().Value(connKey{}).(*gatheringConn).held != nil {
			t.Error("the connection still holds back")
		}
	}))
	if got := s.do(t, http.MethodGet, "/", ""); got.status != http.StatusTeapot || len(got.text) != 3_000 {
		t.Errorf("status %d, %d bytes", got.status, len(got.text))
	}
}

// broken is a connection that cannot write.
type broken struct{ net.Conn }

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// What fails when it is written at last is reported, and is not tried again.
func TestHeldBackForNobody(t *testing.T) {
	c := &gatheringConn{Conn: broken{}, buffers: new(sync.Pool)}
	c.hold()
	if _, err := c.Write([]byte("text")); err != nil {
		t.Errorf("held back: %v", err)
	}
	if err := c.letGo(); !errors.Is(err, errBroken) {
		t.Errorf("letting go: %v", err)
	}
	c.hold()
	if err := c.letGo(); err != nil {
		t.Errorf("nothing was held: %v", err)
	}
	c.hold()
	if _, err := io.WriteString(c, "text"); err != nil {
		t.Error(err)
	}
	if _, err := c.Write(make([]byte, mostHeld)); !errors.Is(err, errBroken) {
		t.Errorf("too much to hold: %v", err)
	}
	if err := c.letGo(); err != nil {
		t.Errorf("what failed is written again: %v", err)
	}
}

// breaking is a listener whose connections break off the first thing that they
// are told to write, as where the time for that is over.
type breaking struct{ net.Listener }

func (l breaking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &breakingConn{Conn: c}, err
}

type breakingConn struct {
	net.Conn
	broke bool
}

func (c *breakingConn) Write(p []byte) (int, error) {
	if c.broke {
		return c.Conn.Write(p)
	}
	c.broke = true
	n, err := c.Conn.Write(p[:len(p)/2])
	return n, errors.Join(err, errBroken)
}

// An answer that was broken off is the last on its connection: what the client
// has sent behind the request is not executed, and nothing is written behind
// half an answer.
func TestNothingFollowsHalfAnAnswer(t *testing.T) {
	for _, length := range []int{100, shortAnswer + 1, 12_000, mostHeld} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			var executed atomic.Int64
			api := newServer(t, func(_ *Config, schema *fakeSchema) {
				schema.fields["hello"] = func(context.Context) (any, error) {
					executed.Add(1)
					return strings.Repeat("x", length), nil
				}
			})
			s := &server{Server: httptest.NewUnstartedServer(api.handler)}
			s.Listener, s.Config.ConnContext = Gather(breaking{s.Listener}), ConnContext
			s.Start()
			t.Cleanup(s.Close)
			client, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			const body = `{"query":"{hello}"}`
			request := func(connection string) string {
				return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nConnection: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", connection, len(body), body)
			}
			if _, err := io.WriteString(client, request("keep-alive")+request("close")); err != nil {
				t.Fatal(err)
			}
			// The connection may be reset, since a request was not read.
			got, _ := io.ReadAll(client)
			if n := strings.Count(string(got), "HTTP/1.1"); n != 1 {
				t.Errorf("%d answers begin in %d bytes", n, len(got))
			}
			if n := executed.Load(); n != 1 {
				t.Errorf("%d requests were executed", n)
			}
		})
	}
}

// The writing side can be shut down as before.
func TestCloseWrite(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = Gather(l)
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(client); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}
