package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// server is a running `asof serve`, for tests that are not scripts.
type server struct {
	url    string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it has
	killed bool
}

// kill ends the server without a warning.
func (s *server) kill(t *testing.T) {
	t.Helper()
	s.killed = true
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.ended
}

// startServer runs a program on a free port until the test ends.
func startServer(t testing.TB, program, store string, flags ...string) *server {
	t.Helper()
	cmd := exec.Command(program, append([]string{"serve", "--addr", "127.0.0.1:0", "--store", store}, flags...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	s := &server{cmd: cmd, ended: make(chan struct{})}
	for s.url == "" && lines.Scan() {
		s.url = address.FindString(lines.Text())
	}
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // Wait tells where it has ended before
		<-s.ended
		if err := cmd.Wait(); (err != nil) != s.killed || s.url == "" {
			t.Errorf("the server ended with %v:\n%s", err, log.String())
		}
	})
	if s.url == "" {
		t.Fatal("the server did not start; its log follows")
	}
	return s
}

// answer is what a GraphQL request was answered with.
type answer struct {
	Data   map[string]json.RawMessage
	Errors []struct {
		Message    string
		Path       []any
		Extensions struct{ Code string }
	}
}

// ask sends a GraphQL request.
func (s *server) ask(t *testing.T, query string, variables map[string]any) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(s.url+"/graphql", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	return a
}

// read sends a request that must have no errors, and decodes its only field.
func read[T any](t *testing.T, s *server, query string, variables map[string]any) T {
	t.Helper()
	a := s.ask(t, query, variables)
	if len(a.Errors) > 0 {
		t.Fatalf("%s: %s\n%s %v", a.Errors[0].Extensions.Code, a.Errors[0].Message, query, variables)
	}
	if len(a.Data) != 1 {
		t.Fatalf("the answer has %d fields, want one: %v\n%s %v", len(a.Data), a.Data, query, variables)
	}
	var value T
	for _, raw := range a.Data {
		if err := json.Unmarshal(raw, &value); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
	}
	return value
}

// run executes a command of the program and returns what it said.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(program), args, err, out)
	}
	return string(out)
}
