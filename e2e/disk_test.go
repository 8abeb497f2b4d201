package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// An import that runs out of room says so, leaves a sound store, and is
// completed by running it again where there is room. A limit on the size of
// files stands for a small disk.
func TestImportOutOfRoom(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the shell of this system cannot limit the size of files")
	}
	var history strings.Builder
	const lines = 10_000
	for i := range lines {
		fmt.Fprintf(&history, `{"collection":"platforms","id":"p%d","at":"2024-01-01T%02d:%02d:%02dZ","by":"ann","op":"put","data":{"name":"n%d","description":"%s"}}`+"\n",
			i%500, i/3600%24, i/60%60, i%60, i, strings.Repeat("room ", 50))
	}
	store := "sqlite:" + filepath.Join(t.TempDir(), "small.db")
	feed(t, store, "") // the store itself has room
	cmd := exec.Command("sh", "-c", `ulimit -f 1000; exec "$0" "$@"`, program, "import", "--store", store, "-")
	cmd.Stdin = strings.NewReader(history.String())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the import stopped; what it added is kept") {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "panic") {
		t.Errorf("%s", out)
	}
	run(t, program, "check", "--store", store)
	if kept := run(t, program, "export", "--store", store, "-"); strings.Count(kept, "\n") >= lines {
		t.Fatal("there was room for everything")
	}
	feed(t, store, history.String())
	if n := strings.Count(run(t, program, "export", "--store", store, "-"), "\n"); n != lines {
		t.Errorf("%d versions in the end, want %d", n, lines)
	}
	run(t, program, "check", "--store", store)
}

// A server without room says of a write that nothing was written, and why;
// everything that was acknowledged can be read. The room is a file system of
// the server's own, or what the size of its files is limited to.
func TestServeOutOfRoom(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("the shell of this system cannot limit the size of files")
		}
		serveOutOfRoom(t, t.TempDir(), "ulimit -f 4000; exec '"+program+"'", "its file cannot be written")
	})
	t.Run("disk", serveOnSmallDisk)
}

func serveOnSmallDisk(t *testing.T) {
	const inOwnRoom = `exec unshare -rm sh -c 'mount -t tmpfs -o size=2m none "$0" && exec "$@"'`
	dir := t.TempDir()
	room := filepath.Join(dir, "room")
	if err := os.Mkdir(room, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", inOwnRoom+` "$0" true`, room).CombinedOutput(); err != nil {
		t.Skipf("this system lets nobody mount a small file system: %v %s", err, out)
	}
	serveOutOfRoom(t, room, fmt.Sprintf("%s '%s' '%s'", inOwnRoom, room, program), "its disk is full")
}

// serveOutOfRoom starts a server by a command of the shell, with a store in a directory.
func serveOutOfRoom(t *testing.T, dir, start, why string) {
	t.Helper()
	wrapped := filepath.Join(t.TempDir(), "asof-in-room")
	if err := os.WriteFile(wrapped, []byte("#!/bin/sh\n"+start+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, wrapped, "sqlite:"+filepath.Join(dir, "small.db"))
	write := func(n int) answer {
		return s.ask(t, `mutation ($key: ID!, $text: String!) { createTag(input: {key: $key, data: {name: "t", description: $text}}) { __typename } }`,
			map[string]any{"key": fmt.Sprint("t", n), "text": strings.Repeat(fmt.Sprint(n, " "), 10_000)})
	}
	written := 0
	var full answer
	for ; len(full.Errors) == 0; written++ {
		if written > 1000 {
			t.Fatal("there was room for everything")
		}
		full = write(written)
	}
	written-- // without the one that failed
	if got := full.Errors[0]; got.Extensions.Code != "UNAVAILABLE" || got.Message != "the store takes no writes now: "+why+"; nothing was written" {
		t.Errorf("after %d writes: %+v", written, got)
	}
	if written == 0 {
		t.Error("there was room for nothing")
	}
	read := s.ask(t, `query ($last: ID!, $next: ID!) { tags { totalCount } last: tag(key: $last) { version } next: tag(key: $next) { version } }`,
		map[string]any{"last": fmt.Sprint("t", written-1), "next": fmt.Sprint("t", written)})
	if want := fmt.Sprintf(`{"totalCount":%d}`, written); string(read.Data["tags"]) != want || string(read.Data["last"]) != `{"version":1}` || string(read.Data["next"]) != "null" {
		t.Errorf("after %d writes there is %s (%v)", written, read.Data, read.Errors)
	}
}
