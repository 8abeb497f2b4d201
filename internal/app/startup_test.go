package app

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

// freeAddress is one that nobody listens on. Where there is more than 127.0.0.1 it
// is not on that, whose free ports others take for their connections.
func freeAddress(t *testing.T) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = "127.0.0.2"
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// The address answers while the store opens, and says nothing of the store before
// that is open.
func TestWhileTheStoreOpens(t *testing.T) {
	addr := freeAddress(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(begun); <-goOn })
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	p := &program{url: "http://" + addr, cancel: stop, ended: make(chan int, 1), stderr: new(safeBuffer)}
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: in, Stderr: p.stderr, Now: func() time.Time {
		once() // the demo is written into a store that is open for nobody yet
		return time.Now()
	}}
	printed := make(chan string)
	go func() {
		first, _ := bufio.NewReader(out).ReadString('\n')
		printed <- first
		_, _ = io.Copy(io.Discard, out)
	}()
	go func() {
		p.ended <- m.Run(ctx, []string{
			"serve", "--demo", "--addr=" + addr, "--sync=off", "--cors-origin=http://app.example",
			"--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db"),
		})
		_ = in.Close()
	}()
	t.Cleanup(func() {
		if status := p.stop(); status != 0 {
			t.Errorf("the server ended with status %d:\n%s", status, p.stderr)
		}
	})
	select {
	case <-begun:
	case text := <-printed:
		t.Fatalf("printed before it is ready: %q\n%s", text, p.stderr)
	}
	const no, yes = http.StatusServiceUnavailable, http.StatusOK
	const refused = `{"errors":[{"message":"the store is opening; try again in a moment; nothing was written","extensions":{"code":"UNAVAILABLE"}}]}`
	for _, c := range []struct {
		method, path, body string
		status, later      int
		text               string
	}{
		{"GET", "/healthz", "", yes, yes, "ok\n"},
		{"GET", "/readyz", "", no, yes, "the store is opening\n"},
		{"POST", "/graphql", `{"query":"{__typename}"}`, no, yes, refused},
		{"GET", "/graphql?query={__typename}", "", no, yes, refused},
		{"GET", "/metrics", "", no, yes, "the store is opening\n"},
		{"GET", "/none", "", no, http.StatusNotFound, "the store is opening\n"},
	} {
		header := []string{"Content-Type", "application/json", "Origin", "http://app.example"}
		got := p.do(t, c.method, c.path, c.body, header...)
		if got.status != c.status || got.body != c.text {
			t.Errorf("%s %s: status %d: %s", c.method, c.path, got.status, got.body)
		}
		if again := got.header.Get("Retry-After"); (again != "") != (c.status == no) {
			t.Errorf("%s %s: Retry-After: %q", c.method, c.path, again)
		}
		if got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: without the headers that every answer has: %v", c.method, c.path, got.header)
		}
		if strings.HasPrefix(c.path, "/graphql") && got.header.Get("Access-Control-Allow-Origin") != "http://app.example" {
			t.Errorf("%s %s: pages of the origin that is listed cannot read it: %v", c.method, c.path, got.header)
		}
		defer func() {
			if got := p.do(t, c.method, c.path, c.body, header...); got.status != c.later {
				t.Errorf("%s %s of an open store: status %d: %s", c.method, c.path, got.status, got.body)
			}
		}()
	}
	if status, _, stderr := run(t, "", "health", "--addr="+addr); status != 1 || !strings.Contains(stderr, "is not ready: the store is opening (status 503)") {
		t.Errorf("asof health: status %d: %s", status, stderr)
	}
	close(goOn)
	if text := <-printed; !strings.HasPrefix(text, "asof serves ") {
		t.Fatalf("printed: %q\n%s", text, p.stderr)
	}
}

// silentServer accepts connections, and never answers.
type silentServer struct {
	net.Listener
	asked chan struct{} // closed when somebody has come
}

func listenSilently(t *testing.T) *silentServer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silentServer{l, make(chan struct{})}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	first := sync.OnceFunc(func() { close(s.asked) })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first()
			all.Go(func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() })
		}
	})
	return s
}

// A server that is stopped while its store opens ends, and so does one
// whose store cannot be opened.
func TestEndWhileTheStoreOpens(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		stop    bool
		status  int
		says    string
	}{
		"stopped":         {"", true, 0, "the store was not open yet"},
		"no answer comes": {"?serverSelectionTimeoutMS=200", false, 1, "asof: connecting to MongoDB: the MongoDB server cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			silent, addr := listenSilently(t), freeAddress(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var out, errs safeBuffer
			m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now}
			ended := make(chan int, 1)
			go func() {
				ended <- m.Run(ctx, []string{"serve", "--addr=" + addr, "--store=mongodb://" + silent.Addr().String() + "/asof" + c.options})
			}()
			<-silent.asked
			if c.stop {
				p := &program{url: "http://" + addr}
				if got := p.do(t, "GET", "/healthz", ""); got.status != http.StatusOK {
					t.Errorf("/healthz: status %d", got.status)
				}
				stop()
			}
			if status := <-ended; status != c.status || out.String() != "" || !strings.Contains(errs.String(), c.says) {
				t.Errorf("status %d, want %d; want %q in:\n%s%s", status, c.status, c.says, &out, &errs)
			}
			if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr); err != nil {
				t.Errorf("the address is still taken: %v", err)
			} else if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
