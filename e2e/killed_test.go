package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An import that is killed at any point leaves a sound store, and is completed
// by running it again.
func TestImportKilled(t *testing.T) {
	dir := t.TempDir()
	var history strings.Builder
	const lines = 40_000
	for i := range lines {
		fmt.Fprintf(&history, `{"collection":"platforms","id":"p%d","at":"2024-01-01T%02d:%02d:%02d.%06dZ","by":"ann","message":"step %d","op":"put","data":{"name":"n%d","description":"%s"}}`+"\n",
			i%500, i/3600%24, i/60%60, i%60, i%1_000_000, i, i, strings.Repeat("x", i%200))
	}
	whole := "sqlite:" + filepath.Join(dir, "whole.db")
	feed(t, whole, history.String())
	want := run(t, program, "export", "--store", whole, "-")
	if n := strings.Count(want, "\n"); n != lines {
		t.Fatalf("%d versions exported, want %d", n, lines)
	}
	for _, part := range []int{1, 5, 9} { // tenths of the file
		store := "sqlite:" + filepath.Join(dir, fmt.Sprintf("killed%d.db", part))
		cmd := exec.Command(program, "import", "--store", store, "-")
		var said bytes.Buffer
		cmd.Stderr = &said
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, writing := in.Write([]byte(history.String()[:part*history.Len()/10]))
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); !wasKilled(err) {
			t.Errorf("the import was not killed, it ended with %v:\n%s", err, said.String())
		}
		if writing != nil {
			t.Errorf("the import ended before it was killed: %v", writing)
		}
		run(t, program, "check", "--store", store)
		if kept := run(t, program, "export", "--store", store, "-"); len(kept) >= len(want) || !contained(kept, want) {
			t.Errorf("killed after %d tenths: the store holds what was not in the file", part)
		}
		feed(t, store, history.String())
		if got := run(t, program, "export", "--store", store, "-"); got != want {
			t.Errorf("killed after %d tenths: completed, it differs: %d bytes, want %d", part, len(got), len(want))
		}
	}
}

// feed imports from a pipe.
func feed(t *testing.T, store, history string) {
	t.Helper()
	cmd := exec.Command(program, "import", "--store", store, "-")
	cmd.Stdin = strings.NewReader(history)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// contained reports whether every line of some is one of all.
func contained(some, all string) bool {
	known := make(map[string]bool)
	for line := range bytes.Lines([]byte(all)) {
		known[string(line)] = true
	}
	for line := range bytes.Lines([]byte(some)) {
		if !known[string(line)] {
			return false
		}
	}
	return true
}
