package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a writer, who sends one update after the other, pays for subscribers with the same
// selection. They are a process of their own, which on Linux runs while nothing else does, as those of other
// machines cost this one nothing.
func BenchmarkWriteBesideSubscribers(b *testing.B) {
	for _, transport := range []string{"SSE", "WebSocket"} {
		for _, n := range []int{1, 1000} {
			b.Run(fmt.Sprint(transport, "/", n), func(b *testing.B) {
				s := startServer(b, program, "sqlite:"+filepath.Join(b.TempDir(), "live.db"), "--log-level", "warn", "--max-memory", "8GB")
				write(s, "end", nil)
				told := followElsewhere(b, s, transport, n)
				var took []time.Duration
				last := time.Duration(0)
				const cpu = "process_cpu_seconds_total"
				before := s.figures(b)[cpu]
				for b.Loop() {
					rename(b, s, len(took)+1)
					now := b.Elapsed()
					took = append(took, now-last)
					last = now
				}
				b.ReportMetric((s.figures(b)[cpu]-before)*1e6/float64(len(took)), "server-cpu-µs/op")
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
				s.mutate(b, fmt.Sprintf(`deleteTag(input: {key: "end", expectedVersion: %d}) {__typename}`, len(took)+1), "DeleteTagSuccess")
				told()
			})
		}
	}
}

// What an idle subscriber takes of the server's memory.
func BenchmarkIdleSubscribers(b *testing.B) {
	const n = 5000
	for _, transport := range []string{"SSE", "WebSocket"} {
		b.Run(transport, func(b *testing.B) {
			for b.Loop() {
				s := startServer(b, program, "sqlite:"+filepath.Join(b.TempDir(), "live.db"), "--log-level", "warn", "--max-memory", "8GB")
				write(s, "end", nil)
				subscribeRaw(b, s.url, transport)
				before := s.figures(b)
				for range n {
					subscribeRaw(b, s.url, transport)
				}
				after := s.figures(b)
				for after["asof_subscriptions"] <= n {
					after = s.figures(b)
				}
				for name, unit := range map[string]string{
					"process_resident_memory_bytes": "resident-B/subscriber", "go_memstats_stack_inuse_bytes": "stack-B/subscriber", "go_memstats_heap_inuse_bytes": "heap-B/subscriber",
				} {
					b.ReportMetric((after[name]-before[name])/n, unit)
				}
			}
		})
	}
}

// figures are the server's metrics that have no labels.
func (s *server) figures(b *testing.B) map[string]float64 {
	b.Helper()
	response, err := http.Get(s.url + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	figures := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if f, err := strconv.ParseFloat(value, 64); err == nil {
			figures[name] = f
		}
	}
	return figures
}

// subscription is what the subscribers ask for.
const subscription = `{"query":"subscription {tagsChanged(where: {description: {eq: \"in\"}}) {kind document {id name description} changes {path newValue} versionInfo {number author {id}}}}"}`

// subscribeRaw opens a subscription, waits until the server answers, and returns what it says from
// then on.
func subscribeRaw(t testing.TB, url, transport string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	request := fmt.Sprintf("POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(subscription), subscription)
	if transport == "WebSocket" {
		request = "GET /graphql HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n" +
			frame(`{"type":"connection_init"}`) + frame(`{"type":"subscribe","id":"1","payload":`+subscription+`}`)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	text := bufio.NewReader(conn)
	response, err := http.ReadResponse(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if transport == "SSE" {
		text = bufio.NewReader(response.Body)
	}
	return text
}

// frame is a message in the one frame of a WebSocket's client, masked by zeros.
func frame(text string) string {
	head := binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(text)))
	return string(append(head, 0, 0, 0, 0)) + text
}

// followElsewhere opens so many subscriptions in another process. told returns when each was told
// that the tag is deleted, and of all versions before.
func followElsewhere(b *testing.B, s *server, transport string, n int) (told func()) {
	b.Helper()
	command := []string{os.Args[0], "-test.run", "^TestFollow$"}
	if _, err := exec.LookPath("chrt"); err == nil {
		command = append([]string{"chrt", "--idle", "0"}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "ASOF_TEST_FOLLOW="+strings.Join([]string{s.url, transport, strconv.Itoa(n)}, " "))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for s.figures(b)["asof_subscriptions"] < float64(n) {
		runtime.Gosched()
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			b.Errorf("%v: %s", err, said.String())
		}
	}
}

// TestFollow is the other process of followElsewhere.
func TestFollow(t *testing.T) {
	asked := strings.Fields(os.Getenv("ASOF_TEST_FOLLOW"))
	if len(asked) == 0 {
		t.Skip("only benchmarks need it")
	}
	n, err := strconv.Atoi(asked[2])
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	for range n {
		text := subscribeRaw(t, asked[0], asked[1])
		reading.Go(func() {
			events := 1 // version 1 came before
			for last := false; ; {
				part, err := text.ReadSlice('}')
				if err != nil {
					t.Errorf("after %d events: %v", events, err)
					return
				}
				events += bytes.Count(part, []byte(`"kind":`))
				last = last || bytes.Contains(part, []byte(`"kind":"LEFT"`))
				if _, number, ok := bytes.Cut(part, []byte(`"number":`)); last && ok {
					if want := fmt.Sprint(events, ","); !bytes.HasPrefix(number, []byte(want)) {
						t.Errorf("told of %d versions, the last is %s", events, number)
					}
					return
				}
			}
		})
	}
	reading.Wait()
}

// rename makes the next version of the tag "end".
func rename(b *testing.B, s *server, version int) {
	b.Helper()
	s.mutate(b, fmt.Sprintf(`updateTag(input: {key: "end", expectedVersion: %d, patch: {name: "N%d"}}) {... on UpdateTagSuccess {version}}`, version, version), fmt.Sprintf(`"version":%d`, version+1))
}

// mutate sends a mutation, whose answer must have a part.
func (s *server) mutate(b *testing.B, mutation, want string) {
	b.Helper()
	body, err := json.Marshal(map[string]string{"query": "mutation {" + mutation + "}"})
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.Post(s.url+"/graphql", "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || !strings.Contains(string(text), want) {
		b.Fatalf("%v: %s", err, text)
	}
}
