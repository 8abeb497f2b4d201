package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// What a writer, who sends one update after the other, pays for subscribers with the same
// selection. They read when he is done: until then the system keeps what they are told, as
// that of other machines does.
func BenchmarkWriteBesideSubscribers(b *testing.B) {
	for _, n := range []int{0, 1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := startServer(b, program, "sqlite:"+filepath.Join(b.TempDir(), "live.db"), "--log-level", "warn")
			write(s, "end", nil)
			conns := make([]net.Conn, n)
			for i := range conns {
				conns[i] = subscribeLazily(b, s)
			}
			version := 1
			for b.Loop() {
				rename(b, s, version)
				version++
			}
			var reading sync.WaitGroup
			for _, conn := range conns {
				reading.Go(func() {
					events := 0
					for lines := bufio.NewScanner(conn); events < version-1 && lines.Scan(); {
						if lines.Text() == "event: next" {
							events++
						}
					}
					if events != version-1 {
						b.Errorf("%d events were told, want %d", events, version-1)
					}
				})
			}
			reading.Wait()
		})
	}
}

// subscribeLazily opens a subscription by server-sent events.
func subscribeLazily(b *testing.B, s *server) net.Conn {
	b.Helper()
	const body = `{"query":"subscription {tagsChanged(where: {description: {eq: \"in\"}}) {kind document {id name description} changes {path newValue} versionInfo {author {id}}}}"}`
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 16)); err != nil { // the head: it has begun
		b.Fatal(err)
	}
	return conn
}

// rename makes the next version of the tag "end".
func rename(b *testing.B, s *server, version int) {
	b.Helper()
	body, err := json.Marshal(map[string]string{"query": fmt.Sprintf(`mutation {updateTag(input: {key: "end", expectedVersion: %d, patch: {name: "N%d"}}) {... on UpdateTagSuccess {version}}}`, version, version)})
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.Post(s.url+"/graphql", "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || !strings.Contains(string(text), fmt.Sprintf(`"version":%d`, version+1)) {
		b.Fatalf("%v: %s", err, text)
	}
}
