package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage"
)

// program is a running server.
type program struct {
	url    string
	cancel context.CancelFunc
	ended  chan int
	stderr *safeBuffer
}

// safeBuffer is written by one goroutine and read by another.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// run runs the program to its end.
func run(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Now: time.Now}
	status = m.Run(t.Context(), args)
	return status, out.String(), errs.String()
}

// serve starts a server with a store of its own and waits for its URL.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	return serveMigrated(t, nil, args...)
}

// serveMigrated is serve with migrations of what is stored.
func serveMigrated(t *testing.T, migrations map[string]storage.Migration, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	p := &program{cancel: cancel, ended: make(chan int, 1), stderr: new(safeBuffer)}
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Migrations: migrations, Stdin: strings.NewReader(""), Stdout: in, Stderr: p.stderr, Now: time.Now}
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--sync=off", "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")}, args...)
	go func() {
		defer func() { _ = in.Close() }()
		p.ended <- m.Run(ctx, args)
	}()
	t.Cleanup(func() {
		if status := p.stop(); status != 0 {
			t.Errorf("the server ended with status %d:\n%s", status, p.stderr)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(lines.Text()); url != "" {
			p.url = url
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return p
		}
	}
	t.Fatalf("the server did not start:\n%s", p.stderr)
	return nil
}

// stop ends the server and returns its status; again: the same.
func (p *program) stop() int {
	p.cancel()
	status := <-p.ended
	p.ended <- status
	return status
}

// reply is what the server answered.
type reply struct {
	status int
	header http.Header
	length int64 // as announced; -1: not
	body   string
}

func (p *program) do(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, response.ContentLength, string(text)}
}

func (p *program) query(t *testing.T, document string, header ...string) reply {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": document})
	if err != nil {
		t.Fatal(err)
	}
	return p.do(t, "POST", "/graphql", string(body), append([]string{"Content-Type", "application/json"}, header...)...)
}
