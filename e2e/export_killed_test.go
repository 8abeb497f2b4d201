package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An export that is killed leaves no file that looks complete: its name has
// what it had before, nothing or an earlier export. Another one is not in the
// way of what the killed one left.
func TestExportKilled(t *testing.T) {
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "asof.db")
	var history strings.Builder
	const lines = 10_000
	random := rand.New(rand.NewPCG(1, 1))
	for i := range lines {
		// Text that does not compress to nothing, so that the file grows.
		var text [120]byte
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		fmt.Fprintf(&history, `{"collection":"platforms","id":"p%d","at":"2024-01-01T%02d:%02d:%02d.%06dZ","by":"ann","op":"put","data":{"name":"n%d","description":"%x"}}`+"\n",
			i%500, i/3600%24, i/60%60, i%60, i%1_000_000, i, text)
	}
	feed(t, store, history.String())
	for _, ending := range []string{".ndjson", ".ndjson.gz", ".ndjson.zst"} {
		whole := filepath.Join(dir, "whole"+ending)
		run(t, program, "export", "--store", store, whole)
		want := contents(t, whole)
		if len(want) < 1<<20 {
			t.Fatalf("%s has %d bytes, too few to be killed in between", whole, len(want))
		}
		killed := 0
		kills := []struct {
			tenths int
			before string
		}{{0, ""}, {1, "an earlier export\n"}, {5, ""}, {9, "an earlier export\n"}}
		// On a slow machine every kill may come too late.
		for i := 0; i < len(kills) || killed == 0 && i < mostKills && !t.Failed(); i++ {
			tenths, before := kills[i%len(kills)].tenths, kills[i%len(kills)].before
			t.Run(fmt.Sprintf("%s after %d tenths, before it %q", ending, tenths, before), func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "export"+ending)
				if before != "" {
					if err := os.WriteFile(out, []byte(before), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				ended := killExport(t, store, out, int64(len(want))*int64(tenths)/10)
				switch now := contents(t, out); {
				case ended && now == before:
					killed++
				case now != want: // where the export was faster than the kill, it is whole
					t.Errorf("killed: %t; the file has %d bytes, want %d or %d", ended, len(now), len(before), len(want))
				}
				run(t, program, "export", "--store", store, out)
				if now := contents(t, out); now != want {
					t.Errorf("exported again it has %d bytes, want %d", len(now), len(want))
				}
			})
		}
		if killed == 0 {
			t.Errorf("%s: of %d kills none came before the file was whole", ending, mostKills)
		}
	}
	run(t, program, "check", "--store", store) // which exports only read
}

// mostKills bounds how often a kill is tried until one comes in between.
const mostKills = 100

// contents reads a file; nothing where there is none.
func contents(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// killExport kills an export when what it writes has so many bytes; it returns
// false where the export ended before. The kill can come between the renaming
// of what was written and the end of the process.
func killExport(t *testing.T, store, out string, size int64) (killed bool) {
	t.Helper()
	return killWhen(t, exec.Command(program, "export", "--store", store, out), func() bool {
		parts, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".*.part"))
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) == 0 {
			return false
		}
		info, err := os.Stat(parts[0])
		return err == nil && info.Size() >= size // else renamed meanwhile, or too early
	})
}
