package sqlitestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// What readers read often stays in memory after a large load, too. SQLite's caches of pages share
// one limit in a process, which the writer's must not use up, nor the stores of other tests.
func TestPagesAreKeptAfterALargeLoad(t *testing.T) {
	const alone = "ASOF_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	s := benchStore(t, Options{Sync: SyncOff, bulkVersions: 100, readers: 1, VersionCache: -1})
	vs := benchVersions(7_000, 7_000) // more than all caches hold
	for i := range vs {               // longer texts have pages that SQLite reads past its caches
		vs[i].Data = fmt.Appendf(nil, `{"text":%q}`, bytes.Repeat([]byte("x"), 3<<10))
	}
	if _, err := s.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	if err := s.writer.submit(&request{ctx: t.Context(), run: func() error {
		return errors.Join(s.writer.endBulk(), s.writer.exec("PRAGMA wal_checkpoint(TRUNCATE)"))
	}}); err != nil {
		t.Fatal(err)
	}
	const times = 100
	n := times
	for try := 0; n >= times && try < 100; try++ { // a checkpoint reads, too
		before := systemReads(t)
		for range times {
			got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: vs[0].Key, At: driver.Forever}}, []string{})
			if err != nil || got[0] == nil {
				t.Fatalf("got %v, %v", got, err)
			}
		}
		n = systemReads(t) - before
	}
	if n >= times {
		t.Errorf("reading a document %d times took %d reads of the file", times, n)
	}
}

// systemReads is how many system calls of this process have read a file.
func systemReads(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err)
	}
	_, count, _ := bytes.Cut(text, []byte("syscr: "))
	if _, err := fmt.Sscan(string(count), &n); err != nil {
		t.Skip(err)
	}
	return n
}
