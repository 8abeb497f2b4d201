package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An import that is killed at any point leaves a sound store, and is completed
// by running it again.
func TestImportKilled(t *testing.T) {
	t.Parallel()
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
	history.Reset()
	history.WriteString(want) // with seals, which are the same in every store then
	size := sizeOf(t, filepath.Join(dir, "whole.db"))
	last := strings.LastIndexByte(strings.TrimSuffix(history.String(), "\n"), '\n') + 1
	for i, kill := range []struct {
		tenths int64 // of the store
		sent   int   // so much of the history comes before
	}{
		{1, history.Len()},
		{3, history.Len()},
		{5, history.Len()},
		{7, history.Len()},
		{9, history.Len()},
		// Without its last line the import cannot end, and this is more than its first
		// batch makes of the store: so it is between its beginning and its end for certain.
		{3, last},
	} {
		file := filepath.Join(dir, fmt.Sprintf("killed%d.db", i))
		store := "sqlite:" + file
		ended := killImportAt(t, file, history.String()[:kill.sent], kill.sent == history.Len(), kill.tenths*size/10)
		run(t, program, "check", "--store", store)
		kept := run(t, program, "export", "--store", store, "-")
		n := strings.Count(kept, "\n")
		t.Logf("at %d tenths, killed: %t: %d of %d versions are kept", kill.tenths, ended, n, lines)
		if !contained(kept, want) || !ended && n != lines {
			t.Errorf("at %d tenths, killed: %t: the store holds what was not in the file, or lacks what was imported", kill.tenths, ended)
		}
		if kill.sent == last && (!ended || n == 0 || n == lines) {
			t.Errorf("killed: %t; %d versions are kept: it was not in between", ended, n)
		}
		feed(t, store, history.String())
		if got := run(t, program, "export", "--store", store, "-"); got != want {
			t.Errorf("killed at %d tenths: completed, it differs: %d bytes, want %d", kill.tenths, len(got), len(want))
		}
	}
}

// sizeOf is the size of a store's file and its log, in bytes.
func sizeOf(t *testing.T, file string) (size int64) {
	t.Helper()
	for _, name := range []string{file, file + "-wal"} {
		info, err := os.Stat(name)
		switch {
		case err == nil:
			size += info.Size()
		case !os.IsNotExist(err):
			t.Fatal(err)
		}
	}
	return size
}

// killImportAt kills an import into a new store when that has so many bytes; it
// returns false where the import ended before, which it can where it is told that
// there is no more.
func killImportAt(t *testing.T, file, history string, whole bool, size int64) (killed bool) {
	t.Helper()
	cmd := exec.Command(program, "import", "--store", "sqlite:"+file, "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := io.WriteString(in, history)
		if err != nil || whole {
			_ = in.Close() // as killWhen does, once the import has ended
		}
	}()
	return killWhen(t, cmd, func() bool { return sizeOf(t, file) >= size })
}

// killWhen runs a command and kills it when it is time, which is asked every
// millisecond; it returns false where the command ended before.
func killWhen(t *testing.T, cmd *exec.Cmd, isTime func() bool) (killed bool) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil && !wasKilled(err) {
				t.Fatalf("%v ended with %v:\n%s", cmd.Args, err, said.String())
			}
			return err != nil
		case <-poll.C:
		}
		if !isTime() {
			continue
		}
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
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
