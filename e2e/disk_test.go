package e2e

import (
	"fmt"
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
