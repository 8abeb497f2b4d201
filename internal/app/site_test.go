package app

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

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
	if got := p.do(t, "HEAD", "/metrics", ""); got.status != 200 || got.length > 0 { // nothing was gathered
		t.Errorf("HEAD /metrics: status %d, %d bytes", got.status, got.length)
	}
	if got := p.do(t, "GET", "/none", ""); got.status != 404 {
		t.Errorf("/none: status %d", got.status)
	}
	for _, path := range []string{"/", "/graphql/"} {
		if got := p.do(t, "POST", path, `{"query":"{__typename}"}`); got.status != 405 || !strings.Contains(got.body, "GraphQL is at /graphql\n") {
			t.Errorf("POST %s: status %d: %s", path, got.status, got.body)
		}
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
	if metrics := p.do(t, "GET", "/metrics", "").body; !strings.Contains(metrics, `asof_operations_total{code="OK",executor="plan",status="200",type="query"} 1`) ||
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
	if took, ok := line["durationSeconds"].(float64); !ok || took < 0 {
		t.Errorf("the operation took %v s", line["durationSeconds"])
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
	for sent, actor := range map[string]string{"Zoë": "Zoë", "": "anonymous", "Jos\xe9": "José", "\xff": "ÿ", "Мария": "Мария", "Ada K. Lovelace": "Ada K. Lovelace", "مهدی\u200cپور": "مهدی\u200cپور"} {
		body := p.query(t, read).body
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		mutation := fmt.Sprintf(`mutation {updateProject(input: {key: "lanternfish", expectedVersion: %d, patch: {name: "By %s"}}) {__typename}}`,
			got.Data.Project.Version, actor)
		header := []string{"X-Actor", sent}
		if sent == "" {
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
	for _, bad := range []string{
		" ", strings.Repeat("x", 201), strings.Repeat("\xe9", 101), "a\x85\xff", "\xa0", "a\tb",
		"\u00a0ada", "ada\u3000", "ada\u00a0", // blanks around it
		"a\u202edmin", "ad\u2066a", "a\u200eda", "a\u061cda", // they change the direction of writing
		"ad\u200ba", "ad\u200da", "a\u00adda", "a\u2060da", "\ufeffada", "ada\U000e0041", "ada\ufe0f", "ada\u3164", "a\u034fda", // not seen
		"a\u2028da", "a\ue000", "a\ufdd0", "a\U0010ffff", // no characters that one could know
	} {
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
	if metrics := p.do(t, "GET", "/metrics", "").body; !strings.Contains(metrics, `asof_requests_refused_total{reason="host"} 10`) {
		t.Errorf("metrics:\n%s", metrics)
	}
	p.stop()
	if log := p.stderr.String(); strings.Count(log, "request refused") != 10 || !strings.Contains(log, "host=evil.example.org") {
		t.Errorf("log: %s", log)
	}
	open := serve(t, "--insecure-no-auth")
	if got := open.do(t, "GET", "/healthz", "", "Host", "asof.example.org"); got.status != 200 {
		t.Errorf("with --insecure-no-auth: status %d", got.status)
	}
}

// Pages of the origins that are named may send what headers they like, as clients
// have some of their own; pages of others may not even send JSON.
func TestCrossOrigin(t *testing.T) {
	const asked = "apollo-require-preflight,apollographql-client-name,apollographql-client-version,authorization,content-type,traceparent,x-actor"
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
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", asked)
		if got := preflight.header.Get("Access-Control-Allow-Headers"); c.want != "" && got != asked || c.want == "" && got != "" {
			t.Errorf("%s may send the headers %q", c.origin, got)
		}
		request := c.p.query(t, `{__typename}`, "Origin", c.origin)
		for name, response := range map[string]reply{"OPTIONS": preflight, "POST": request} {
			if got := response.header.Get("Access-Control-Allow-Origin"); got != c.want {
				t.Errorf("%s from %s: Access-Control-Allow-Origin %q, want %q", name, c.origin, got, c.want)
			}
			if response.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials are allowed")
			}
		}
		if got := request.header.Get("Access-Control-Expose-Headers"); c.want != "" && got != "X-Request-Id, Retry-After" {
			t.Errorf("%s may read the headers %q", c.origin, got)
		}
	}
}

func TestArgumentErrorsHaveLocations(t *testing.T) {
	p := serve(t)
	got := p.query(t, `{tags(first: 1) {totalCount} tag(key: "a", asOf: "2025-03-01") {name}}`).body
	if !strings.Contains(got, `"locations":[{"line":1,"column":30}]`) {
		t.Errorf("no location: %s", got)
	}
}

func TestCompression(t *testing.T) {
	p := serve(t, "--demo")
	large := `{projects(first: 50) {nodes {name description}}}`
	plain := dataOf(p.query(t, large).body)
	for accepted, want := range map[string]string{
		"gzip": "gzip", "zstd": "zstd", "gzip, deflate, br, zstd": "gzip", "zstd, gzip": "gzip", "gzip;q=0.5, zstd": "zstd", "gzip, zstd;q=0.5": "gzip", "gzip;q=0, zstd": "zstd",
		"zstd;q=0, gzip": "gzip", "br": "", "gzip;q=0, zstd;q=0": "",
	} {
		got := p.query(t, large, "Accept-Encoding", accepted)
		if encoding := got.header.Get("Content-Encoding"); encoding != want {
			t.Errorf("%s: %q was used, want %q", accepted, encoding, want)
		}
		if text := dataOf(decompressed(t, got)); text != plain {
			t.Errorf("%s: the answer is another: %.200s", accepted, text)
		}
	}
	got := p.query(t, large, "Accept-Encoding", "identity")
	if got.header.Get("Content-Encoding") != "" || !json.Valid([]byte(got.body)) || got.length != int64(len(got.body)) {
		t.Errorf("identity: %v", got.header)
	}
	for _, accepted := range []string{"gzip", "zstd"} {
		got = p.query(t, `{__typename}`, "Accept-Encoding", accepted)
		if got.header.Get("Content-Encoding") != "" {
			t.Error("a small answer was compressed")
		}
	}
}

// dataOf is an answer without the instant of its request.
func dataOf(body string) string {
	data, _, _ := strings.Cut(body, `,"extensions"`)
	return data
}

func decompressed(t *testing.T, r reply) string {
	t.Helper()
	var from io.Reader = strings.NewReader(r.body)
	var err error
	switch r.header.Get("Content-Encoding") {
	case "gzip":
		from, err = gzip.NewReader(from)
	case "zstd":
		from, err = zstd.NewReader(from, zstd.WithDecoderConcurrency(1))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A request that was accepted is answered although the server is ending.
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
