package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// TestFullCatalog imports the large real catalogue, which takes a while: it
// runs only where ASOF_TEST_FULL is set.
func TestFullCatalog(t *testing.T) {
	dir := dataDir(t)
	if os.Getenv("ASOF_TEST_FULL") == "" {
		t.Skip("ASOF_TEST_FULL is not set: importing 750,274 versions takes most of a minute and 1 GB of disk")
	}
	store := "sqlite:" + filepath.Join(t.TempDir(), "full.db")
	began := time.Now()
	cmd := exec.Command(program, "import", "--store", store, filepath.Join(dir, "catalog-full.ndjson.zst"))
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Logf("imported in %s:\n%s", time.Since(began).Round(time.Millisecond), said)
	if !strings.Contains(string(said), "750274 versions added, 0 already there") {
		t.Errorf("the import said:\n%s", said)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Skip("this system does not tell the memory of a process")
	}
	const most = 300 // MB
	if peak := usage.Maxrss * 1024 / 1_000_000; peak >= most {
		t.Errorf("the import took %d MB at its peak, more than %d", peak, most)
	} else {
		t.Logf("peak memory: %d MB", peak)
	}
	documents, alive := countDocuments(t, store)
	if documents != 2350 {
		t.Errorf("%d documents, want 2350", documents)
	}
	var pages []string // of each executor
	for _, executor := range executors() {
		t.Run(executor, func(t *testing.T) {
			s := startServer(t, program, store, "--executor", executor)
			live := 0
			for _, root := range []string{"projects", "tags", "licenses", "platforms"} {
				live += read[struct{ TotalCount int }](t, s, "{ "+root+" { totalCount } }", nil).TotalCount
			}
			if live != alive {
				t.Errorf("%d documents are there, want %d", live, alive)
			}
			pages = append(pages, string(read[json.RawMessage](t, s, fullPage, nil)))
		})
	}
	for _, page := range pages {
		if nodes := gjson.Get(page, "nodes.#").Int(); nodes != 50 || page != pages[0] {
			t.Errorf("a page of %d documents, want 50; as the first executor has it:\n%s\n%s", nodes, page, pages[0])
		}
	}
}

// fullPage is a page of the past with what its documents refer to.
const fullPage = `{ projects(asOf: "2025-01-01T00:00:00Z", where: { stars: { gte: 100 } }, orderBy: [{ field: stars, direction: DESC }], first: 50) {
  totalCount pageInfo { endCursor } nodes { id name stars updatedAt tags { id name } licenses { id name } currentRelease { tag publishedAt } }
} }`

// countDocuments exports a store and counts its documents, and those whose
// last version is not a deletion.
func countDocuments(t *testing.T, store string) (all, alive int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "export.ndjson")
	run(t, program, "export", "--store", store, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	type id struct{ Collection, ID string }
	deleted := make(map[id]bool)
	lines := json.NewDecoder(f)
	for lines.More() {
		var line struct {
			id
			Op string
		}
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
		deleted[line.id] = line.Op == "delete"
	}
	for _, gone := range deleted {
		if !gone {
			alive++
		}
	}
	return len(deleted), alive
}
