package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
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
	m := Main{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Now: time.Now}
	status = m.Run(t.Context(), args)
	return status, out.String(), errs.String()
}

// serve starts a server with a store of its own and waits for its URL.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	p := &program{cancel: cancel, ended: make(chan int, 1), stderr: new(safeBuffer)}
	m := Main{Stdin: strings.NewReader(""), Stdout: in, Stderr: p.stderr, Now: time.Now}
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

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args   string
		status int
		text   string // in standard error, or for status 0 in standard output
	}{
		{"--version", 0, "asof "},
		{"--help", 0, "Serve the GraphQL API"},
		{"serve --help", 0, "$ASOF_CORS_ORIGIN"},
		{"", 2, "expected one of"},
		{"fly", 2, "unexpected argument fly"},
		{"serve --nonsense", 2, "unknown flag --nonsense"},
		{"serve --addr=nonsense", 2, "want HOST:PORT"},
		{"serve --addr=:8080", 2, "--insecure-no-auth"},
		{"serve --addr=0.0.0.0:8080", 2, "--insecure-no-auth"},
		{"serve --addr=[::]:8080", 2, "--insecure-no-auth"},
		{"serve --addr=192.0.2.1:8080", 2, "not on 192.0.2.1"},
		{"serve --addr=127.0.0.1:99999", 1, "cannot listen"},
		{"serve --cors-origin=*", 2, "name the origins"},
		{"serve --cors-origin=example.org", 2, "want scheme://host"},
		{"serve --cors-origin=https://example.org/", 2, "want scheme://host"},
		{"serve --store=mongodb://localhost", 2, "no MongoDB engine"},
		{"serve --store=asof.db", 2, "want sqlite:PATH"},
		{"serve --store=sqlite:", 2, "want sqlite:PATH"},
		{"serve --store=sqlite:DIR", 1, "is a directory"},
		{"serve --store=sqlite:DIR/none/asof.db", 1, "there is no directory"},
		{"serve --sync=sometimes", 2, "--sync must be one of"},
		{"serve --max-body=much", 2, "want a size"},
		{"serve --max-body=-1", 2, "want a size"},
		{"serve --max-depth=0", 2, "--max-depth must be positive"},
		{"import", 2, "<file>"},
		{"import DIR/none.ndjson", 2, "none.ndjson"},
		{"import DIR", 2, "is a directory"},
		{"export --store=sqlite:DIR/none.db", 2, "there is no store"},
		{"check --store=sqlite:DIR/none.db", 2, "there is no store"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))
			if !strings.Contains(c.args, "--store") {
				args = append(args, "--store=sqlite:"+filepath.Join(dir, "asof.db"))
			}
			if c.args == "" {
				args = nil
			}
			status, stdout, stderr := run(t, "", args...)
			where := stderr
			if c.status == 0 {
				where = stdout
			}
			if status != c.status || !strings.Contains(where, c.text) {
				t.Errorf("status %d, want %d; want %q in:\n%s%s", status, c.status, c.text, stdout, stderr)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("ASOF_STORE", "mongodb://from-the-environment")
	if _, _, stderr := run(t, "", "check"); !strings.Contains(stderr, "no MongoDB engine") {
		t.Errorf("ASOF_STORE is not read: %s", stderr)
	}
	t.Setenv("ASOF_MAX_DEPTH", "0")
	if _, _, stderr := run(t, "", "serve"); !strings.Contains(stderr, "--max-depth") {
		t.Errorf("ASOF_MAX_DEPTH is not read: %s", stderr)
	}
}

func TestPages(t *testing.T) {
	p := serve(t, "--demo")
	for path, text := range map[string]string{
		"/":        "<html",
		"/healthz": "ok\n",
		"/readyz":  "ready\n",
		"/metrics": "asof_store_versions ",
	} {
		got := p.do(t, "GET", path, "")
		if got.status != 200 || !strings.Contains(got.body, text) {
			t.Errorf("%s: status %d, body %.300s", path, got.status, got.body)
		}
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Security-Policy": "frame-ancestors 'none'",
		} {
			if have := got.header.Get(name); !strings.Contains(have, value) {
				t.Errorf("%s: %s: %q", path, name, have)
			}
		}
	}
	if got := p.do(t, "GET", "/none", ""); got.status != 404 {
		t.Errorf("/none: status %d", got.status)
	}
	if got := p.do(t, "POST", "/readyz", ""); got.status != 405 {
		t.Errorf("POST /readyz: status %d", got.status)
	}
}

func TestQueryIsMeasuredAndLogged(t *testing.T) {
	p := serve(t, "--demo", "--log-format=json")
	body := p.query(t, `query Two { a: project(key: "hearth") {name} b: project(key: "lanternfish", asOf: "2025-06-01T00:00:00Z") {name} }`,
		"X-Actor", "ada", "X-Request-Id", "r-17").body
	var got struct {
		Data       struct{ A, B struct{ Name string } }
		Extensions struct{ AsOf time.Time }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Data.A.Name != "Hearth" || got.Data.B.Name != "Lanternfish" || got.Extensions.AsOf.IsZero() {
		t.Errorf("%v: %s", err, body)
	}
	if metrics := p.do(t, "GET", "/metrics", "").body; !strings.Contains(metrics, `asof_operations_total{code="OK",status="200",type="query"} 1`) ||
		!strings.Contains(metrics, "asof_documents_read_total 2") {
		t.Errorf("metrics:\n%s", metrics)
	}
	p.stop()
	var line map[string]any
	for text := range strings.Lines(p.stderr.String()) {
		if strings.Contains(text, `"msg":"operation"`) {
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
		}
	}
	if line["name"] != "Two" || line["actor"] != "ada" || line["request"] != "r-17" || line["documentsRead"] != 2.0 ||
		line["asOf"] != got.Extensions.AsOf.Format(time.RFC3339Nano) {
		t.Errorf("log: %v", line)
	}
}

func TestActor(t *testing.T) {
	p := serve(t, "--demo")
	const read = `{project(key: "lanternfish") {version versionInfo {author {id}}}}`
	var got struct {
		Data struct {
			Project struct {
				Version     int
				VersionInfo struct{ Author struct{ ID string } }
			}
		}
	}
	for _, actor := range []string{"Zoë", "anonymous"} {
		body := p.query(t, read).body
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		mutation := fmt.Sprintf(`mutation {updateProject(input: {key: "lanternfish", expectedVersion: %d, patch: {name: "By %s"}}) {__typename}}`,
			got.Data.Project.Version, actor)
		header := []string{"X-Actor", actor}
		if actor == "anonymous" {
			header = nil
		}
		if body := p.query(t, mutation, header...).body; !strings.Contains(body, `"UpdateProjectSuccess"`) {
			t.Fatal(body)
		}
		body = p.query(t, read).body
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Data.Project.VersionInfo.Author.ID != actor {
			t.Errorf("written by %s, read as %s (%v)", actor, body, err)
		}
	}
	for _, bad := range []string{" ", strings.Repeat("x", 201), "\xff", "a\tb"} {
		if got := p.query(t, read, "X-Actor", bad); got.status != 400 || !strings.Contains(got.body, "BAD_USER_INPUT") {
			t.Errorf("X-Actor %q: status %d, %s", bad, got.status, got.body)
		}
	}
}

func TestHosts(t *testing.T) {
	p := serve(t)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:1234": 200, "LOCALHOST.": 200, "[::1]:80": 200, "127.8.9.10": 200, "app.localhost": 200,
		"evil.example.org": 421, "127.0.0.1.example.org": 421, "localhost.example.org:80": 421, "192.0.2.1": 421, "[2001:db8::1]": 421,
	} {
		for _, path := range []string{"/healthz", "/"} {
			if got := p.do(t, "GET", path, "", "Host", host); got.status != want {
				t.Errorf("Host %s, %s: status %d, want %d", host, path, got.status, want)
			}
		}
	}
	open := serve(t, "--insecure-no-auth")
	if got := open.do(t, "GET", "/healthz", "", "Host", "asof.example.org"); got.status != 200 {
		t.Errorf("with --insecure-no-auth: status %d", got.status)
	}
}

func TestCrossOrigin(t *testing.T) {
	none, some := serve(t), serve(t, "--cors-origin=https://app.example.org", "--cors-origin=http://localhost:3000")
	for _, c := range []struct {
		p      *program
		origin string
		want   string
	}{
		{none, "https://app.example.org", ""},
		{some, "https://app.example.org", "https://app.example.org"},
		{some, "http://localhost:3000", "http://localhost:3000"},
		{some, "https://evil.example.org", ""},
		{some, "null", ""},
	} {
		preflight := c.p.do(t, "OPTIONS", "/graphql", "", "Origin", c.origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type,x-actor")
		request := c.p.query(t, `{__typename}`, "Origin", c.origin)
		for name, response := range map[string]reply{"OPTIONS": preflight, "POST": request} {
			if got := response.header.Get("Access-Control-Allow-Origin"); got != c.want {
				t.Errorf("%s from %s: Access-Control-Allow-Origin %q, want %q", name, c.origin, got, c.want)
			}
			if response.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials are allowed")
			}
		}
	}
}

func TestCompression(t *testing.T) {
	p := serve(t, "--demo")
	large := `{projects(first: 50) {nodes {name description}}}`
	got := p.query(t, large, "Accept-Encoding", "gzip")
	if got.header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(got.body, "\x1f\x8b") {
		t.Errorf("gzip was not used: %v", got.header)
	}
	got = p.query(t, large, "Accept-Encoding", "identity")
	if got.header.Get("Content-Encoding") != "" || !json.Valid([]byte(got.body)) || got.length != int64(len(got.body)) {
		t.Errorf("identity: %v", got.header)
	}
	got = p.query(t, `{__typename}`, "Accept-Encoding", "gzip")
	if got.header.Get("Content-Encoding") != "" {
		t.Error("a small answer was compressed")
	}
}

// A request that was accepted is answered although the server is told to end.
func TestShutdownFinishesRequests(t *testing.T) {
	p := serve(t, "--demo")
	body, send := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", p.url+"/graphql", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answered := make(chan string, 1)
	go func() {
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			answered <- err.Error()
			return
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		answered <- string(text)
	}()
	if _, err := io.WriteString(send, `{"query": "{project(key: \"hearth\")`); err != nil {
		t.Fatal(err)
	}
	// Another request on its own connection shows that the first has arrived:
	// connections are accepted in order.
	if got := p.query(t, `{__typename}`); got.status != 200 {
		t.Fatalf("status %d", got.status)
	}
	p.cancel()
	for !strings.Contains(p.stderr.String(), "shutting down") {
		runtime.Gosched()
	}
	if _, err := io.WriteString(send, ` {name}}"}`); err != nil {
		t.Fatal(err)
	}
	if err := send.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; !strings.Contains(got, `"name":"Hearth"`) {
		t.Errorf("the answer: %s", got)
	}
}

func TestTwoServersOnOneFile(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")
	serve(t, store)
	status, _, stderr := run(t, "", "serve", "--addr=127.0.0.1:0", store)
	if status != 1 || !strings.Contains(stderr, "another process is using it") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func TestImportExportCheck(t *testing.T) {
	dir := t.TempDir()
	store := func(name string) string { return "--store=sqlite:" + filepath.Join(dir, name) }
	const lines = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","message":"first","op":"put","data":{"name":"A","description":""}}
{"collection":"tags","id":"a","at":"2025-01-02T00:00:00Z","by":"ben","op":"delete"}
`
	if status, out, errs := run(t, lines, "import", "-", store("one.db")); status != 0 || !strings.Contains(out, "2") {
		t.Fatalf("import: status %d: %s%s", status, out, errs)
	}
	status, out, errs := run(t, "", "export", store("one.db"))
	if status != 0 || out != lines {
		t.Errorf("export: status %d: %s%s", status, out, errs)
	}
	file := filepath.Join(dir, "out.ndjson.zst")
	if status, out, errs := run(t, "", "export", file, store("one.db"), "--collection=tags"); status != 0 || !strings.Contains(out, "exported 2 versions") {
		t.Errorf("export to a file: status %d: %s%s", status, out, errs)
	}
	if status, _, errs := run(t, "", "import", file, store("two.db")); status != 0 {
		t.Errorf("import of what was exported: %s", errs)
	}
	if status, out, errs := run(t, "", "check", store("two.db")); status != 0 || !strings.Contains(out, "is sound: 0 documents, 2 versions") {
		t.Errorf("check: status %d: %s%s", status, out, errs)
	}
	status, _, errs = run(t, lines+"{nonsense}\n", "import", "-", store("one.db"))
	if status != 1 || !strings.Contains(errs, "line 3") {
		t.Errorf("import of a bad line: status %d: %s", status, errs)
	}
}
