package e2e

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// An import of real histories that is killed at random points, one after the
// other, leaves a sound store each time that holds only what is in the file;
// completed, it is byte for byte what an undisturbed one makes, on every engine.
func TestImportResumed(t *testing.T) {
	t.Parallel()
	history := unzip(t, filepath.Join(dataDir(t), catalog().events))
	kills := 40
	if os.Getenv("ASOF_TEST_FULL") == "" {
		kills, history = 3, aThird(history)
	}
	whole := "sqlite:" + filepath.Join(t.TempDir(), "whole.db")
	feed(t, whole, string(history))
	want := run(t, program, "export", "--store", whole, "-")
	history = []byte(want) // with seals, which are the same in every store then
	for _, e := range []struct {
		name  string
		store func(*testing.T) string
	}{
		{"sqlite", func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "killed.db") }},
		{"mongodb", func(t *testing.T) string { return mongoDatabase(t, t.Cleanup) }},
	} {
		t.Run(e.name, func(t *testing.T) {
			store := e.store(t)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			const least = 256 << 10
			kept := 0
			for range kills {
				// More than a pipe holds: then the import reads, and its store is there.
				killImport(t, store, history[:least+random.IntN(len(history)-least)])
				run(t, program, "check", "--store", store)
				there := export(t, store)
				if len(there) < kept {
					t.Fatalf("%d bytes are left of %d", len(there), kept)
				}
				kept = len(there)
				t.Logf("%d of %d bytes are kept", kept, len(want))
				if !contained(there, want) {
					t.Fatal("the store holds what was not in the file")
				}
			}
			feed(t, store, string(history))
			if got := export(t, store); got != want {
				t.Errorf("completed, it differs: %d bytes, want %d", len(got), len(want))
			}
		})
	}
}

// aThird is the first third of the lines of a file.
func aThird(history []byte) []byte {
	return history[:bytes.LastIndexByte(history[:len(history)/3], '\n')+1]
}

// killImport gives an import the beginning of a file and kills it, wherever it
// is with that.
func killImport(t *testing.T, store string, beginning []byte) {
	t.Helper()
	cmd := exec.Command(program, "import", "--store", store, "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, writing := in.Write(beginning)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); !wasKilled(err) || writing != nil {
		t.Fatalf("the import ended before it was killed: %v, %v\n%s", err, writing, said.String())
	}
}

// export returns every version of a store, apart from what the program logs.
func export(t *testing.T, store string) string {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(program, "export", "--store", store, "-")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	return string(out)
}
