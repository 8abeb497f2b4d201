package codegentest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// startTimeout bounds how long a server may take to print its address.
const startTimeout = 5 * time.Minute

// Serve starts a program that Build made, on an empty store, and returns the
// URL of its GraphQL endpoint. The server is stopped when the test ends.
func Serve(t testing.TB, binary string) (url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "serve",
		"--store", "sqlite:"+filepath.Join(t.TempDir(), "test.db"), "--addr", "127.0.0.1:0")
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Cancel() // fails when it has ended already
		_ = cmd.Wait()   // an error says only that it was interrupted
		_ = in.Close()   // a pipe's Close does not fail
	})
	found := make(chan string, 1)
	go watch(out, found)
	select {
	case url = <-found:
		return url
	case <-time.After(startTimeout):
		t.Fatalf("the server did not print its address within %s", startTimeout)
		return ""
	}
}

// watch sends the first address that a server prints, and reads on so that it
// never waits for a reader.
func watch(out io.Reader, found chan<- string) {
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if a := address.FindString(lines.Text()); a != "" {
			select {
			case found <- a + "/graphql":
			default: // only the first one matters
			}
		}
	}
	_, _ = io.Copy(io.Discard, out) // after a line too long for the scanner
}

// Query sends a query and returns the data of the answer. It fails the test
// when there are errors.
func Query(t testing.TB, url, query string) (data map[string]any) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Actor", "ada")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	var answer struct {
		Data   map[string]any
		Errors []any
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	if len(answer.Errors) > 0 {
		t.Fatalf("errors: %v", answer.Errors)
	}
	return answer.Data
}
