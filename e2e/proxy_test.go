package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// squid starts the caching proxy Squid in front of a server, and returns its URL.
func squid(t *testing.T, origin string) string {
	t.Helper()
	path, err := exec.LookPath("squid")
	if err != nil { // not everybody's PATH has the programs of administrators
		path, err = exec.LookPath("/usr/sbin/squid")
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the caching proxy Squid is not installed")
		}
		t.Skip("the caching proxy Squid is not installed (Debian: apt-get install squid)")
	}
	listener, err := net.Listen("tcp", "127.0.0.3:0") // whose free ports nobody takes for connections
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	at, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
http_port %s accel defaultsite=localhost
cache_peer %s parent %s 0 no-query no-digest originserver login=PASSTHRU
http_access allow all
cache_mem 8 MB
access_log none
cache_log /dev/null
pid_filename none
coredump_dir /
shutdown_lifetime 0 seconds
pinger_enable off
`, address, at.Hostname(), at.Port())
	file := filepath.Join(t.TempDir(), "squid.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "-N", "-d", "1", "-n", fmt.Sprintf("asof%d", os.Getpid()), "-f", file)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is ended by a signal
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for wait := time.Now().Add(30 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return "http://" + address
		}
		select {
		case <-ended:
			t.Fatalf("Squid has ended:\n%s", log.String())
		case <-time.After(20 * time.Millisecond):
			if time.Now().After(wait) {
				t.Fatalf("Squid does not listen: %v", err)
			}
		}
	}
}

// A caching proxy answers by itself what is asked of the past, asks whether what is asked of now
// is still the same, and gives nobody what somebody else was answered.
func TestCachingProxy(t *testing.T) {
	demo := startServer(t, program, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), "--demo")
	proxy := squid(t, demo.url)
	get := func(query string, header ...string) (text string, hit bool) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy+"/graphql?query="+url.QueryEscape(query), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", response.StatusCode, body, err)
		}
		return string(body), strings.HasPrefix(response.Header.Get("X-Cache"), "HIT")
	}
	executed := func(status string) int { // by the server
		response, err := http.Get(demo.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "asof_operations_total{") && strings.Contains(line, `status="`+status+`"`) && strings.Contains(line, `type="query"`) {
				var count int
				if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &count); err != nil {
					t.Fatal(err)
				}
				n += count
			}
		}
		return n
	}
	const past = `{project(key: "hearth", asOf: "2025-04-02T00:00:00Z") {id tags {name}}}`
	const now = `{tag(key: "photos") {name}}`
	const bearer = "Authorization"

	first, hit := get(past)
	if hit {
		t.Error("the first answer was in the cache")
	}
	for range 3 {
		if again, hit := get(past); !hit || again != first {
			t.Errorf("the past was asked for again: %s", again)
		}
	}
	if n := executed("200"); n != 1 {
		t.Errorf("%d queries were executed, want 1", n)
	}
	for _, who := range []string{"a", "b", "a"} { // a shared cache keeps nothing of theirs, nor gives them others'
		if _, hit := get(past, bearer, "Bearer "+who); hit {
			t.Errorf("%s was answered from the cache", who)
		}
	}
	if n := executed("200"); n != 4 {
		t.Errorf("%d queries were executed, want 4", n)
	}
	if again, hit := get(past); !hit || again != first {
		t.Errorf("after those: %s", again)
	}

	was, _ := get(now)
	for range 3 {
		if again, _ := get(now); again != was { // with the instant of the first answer
			t.Errorf("%s\nwant %s", again, was)
		}
	}
	if fresh, known := executed("200"), executed("304"); fresh != 5 || known != 3 {
		t.Errorf("%d queries were answered, and %d that nothing has changed; want 5 and 3", fresh, known)
	}
	version := read[struct{ Version int }](t, demo, `{tag(key: "photos") {version}}`, nil).Version
	if a := demo.ask(t, fmt.Sprintf(`mutation {updateTag(input: {key: "photos", expectedVersion: %d, patch: {name: "Pictures"}}) {__typename}}`, version), nil); a.Errors != nil {
		t.Fatal(a.Errors)
	}
	if again, _ := get(now); !strings.Contains(again, "Pictures") {
		t.Errorf("after a write: %s", again)
	}
	if again, hit := get(past); !hit || again != first {
		t.Errorf("the past after a write: %s", again)
	}
}
