package app

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/gitimport"
)

// gitRepository is a repository that git fast-import writes.
type gitRepository struct {
	dir, rules string
	commits    int
}

func newGitRepository(t *testing.T) *gitRepository {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: ", err)
	}
	r := &gitRepository{dir: t.TempDir(), rules: filepath.Join(t.TempDir(), "map.yaml")}
	rules := "sources: [{collection: tags, path: 'tags/{key}.json'}, {collection: licenses, path: licenses.json, many: true}]\n"
	if err := os.WriteFile(r.rules, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	r.git(t, "", "init", "--quiet", "--bare", "--initial-branch=main")
	return r
}

func (r *gitRepository) git(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit adds a commit; the files are pairs of a path and its content, "" deletes.
func (r *gitRepository) commit(t *testing.T, files ...string) {
	t.Helper()
	var stream strings.Builder
	from := ""
	if r.commits > 0 {
		from = "from refs/heads/main^0\n"
	}
	r.commits++
	fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata <<.\nCommit %d\n.\n%s", 1704067200+r.commits, r.commits, from)
	for i := 0; i < len(files); i += 2 {
		if files[i+1] == "" {
			fmt.Fprintf(&stream, "D %s\n", files[i])
		} else {
			fmt.Fprintf(&stream, "M 100644 inline %s\ndata %d\n%s\n", files[i], len(files[i+1]), files[i+1])
		}
	}
	r.git(t, stream.String(), "fast-import", "--quiet", "--force")
}

func tag(name string) string { return fmt.Sprintf(`{"name": %q, "description": ""}`, name) }

// fill makes commits that create, change, move and delete documents.
func (r *gitRepository) fill(t *testing.T) {
	t.Helper()
	r.commit(t, "tags/a.json", tag("A"), "tags/b.json", tag("B"), "licenses.json", `{"MIT": {"identifier": "MIT"}, "0BSD": {"identifier": "0BSD"}}`)
	r.commit(t, "tags/a.json", tag("A2"), "licenses.json", `{"MIT": {"identifier": "MIT", "name": "M"}}`)
	r.commit(t, "tags/b.json", "", "tags/c.json", tag("B"))
	r.commit(t, "tags/b.json", tag("B again"), "tags/a.json", tag("A"))
}

// importGit imports the repository into a store.
func (r *gitRepository) importGit(t *testing.T, store string, more ...string) (status int, out string) {
	t.Helper()
	status, stdout, stderr := run(t, "", append([]string{"import", "--store=" + store, "--git=" + r.dir, "--map=" + r.rules}, more...)...)
	return status, stdout + stderr
}

func exportOf(t *testing.T, store string) string {
	t.Helper()
	status, stdout, stderr := run(t, "", "export", "--store="+store)
	if status != 0 {
		t.Fatal(stderr)
	}
	return stdout
}

func newStore(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "asof.db")
}

// An import that ended after any line, as by a kill, is completed by the next one,
// and new commits are added behind what is there.
func TestImportOfRepositoryContinues(t *testing.T) {
	r := newGitRepository(t)
	r.fill(t)
	whole := newStore(t)
	if status, out := r.importGit(t, whole); status != 0 || !strings.Contains(out, "11 versions added") {
		t.Fatalf("%d %s", status, out)
	}
	want := exportOf(t, whole)
	lines := strings.SplitAfter(want, "\n")
	for n := range lines {
		store := newStore(t)
		if status, _, stderr := run(t, strings.Join(lines[:n], ""), "import", "--store="+store, "-"); status != 0 {
			t.Fatal(stderr)
		}
		if status, out := r.importGit(t, store); status != 0 {
			t.Fatalf("after %d lines: %s", n, out)
		}
		if diff := cmp.Diff(unsealed(want), unsealed(exportOf(t, store))); diff != "" {
			t.Errorf("after %d lines: %s", n, diff)
		}
	}
	r.commit(t, "tags/c.json", tag("C"))
	if status, out := r.importGit(t, whole); status != 0 || !strings.Contains(out, "1 version added, 11 already there") {
		t.Errorf("%d %s", status, out)
	}
	if got := exportOf(t, whole); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 12 {
		t.Error(got)
	}
}

// Where the commits that were imported are gone, nothing is added.
func TestImportOfRewrittenRepository(t *testing.T) {
	r := newGitRepository(t)
	r.fill(t)
	store := newStore(t)
	if status, out := r.importGit(t, store); status != 0 {
		t.Fatal(out)
	}
	before := exportOf(t, store)
	old := r.git(t, "", "rev-parse", "main")
	r.git(t, "", "update-ref", "refs/heads/main", "main~1")
	r.commits += 10 // the next commit is later, and of another document
	r.commit(t, "tags/new.json", tag("New"))
	status, out := r.importGit(t, store)
	if status != 1 || !strings.Contains(out, old) || !strings.Contains(out, "the history was rewritten") || !strings.Contains(out, "into an empty store") {
		t.Errorf("%d %s", status, out)
	}
	if diff := cmp.Diff(before, exportOf(t, store)); diff != "" {
		t.Error(diff)
	}
	// The history may go on elsewhere: a merge that has the old one as first parent.
	r.git(t, "", "update-ref", "refs/heads/main", old)
	r.commit(t, "tags/new.json", tag("New"))
	if status, out := r.importGit(t, store); status != 0 || !strings.Contains(out, "1 version added") {
		t.Errorf("%d %s", status, out)
	}
}

// many makes so many commits at once, each of which changes one of some documents.
func (r *gitRepository) many(t *testing.T, commits int) {
	t.Helper()
	var stream strings.Builder
	message := strings.Repeat("It was so, and is no more. ", 20)
	for i := range commits {
		content := tag(fmt.Sprint(i, " ", message))
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata %d\n%s\nM 100644 inline tags/t%d.json\ndata %d\n%s\n",
			1704067200+i, len(message), message, i%50, len(content), content)
	}
	r.git(t, stream.String(), "fast-import", "--quiet")
}

// Very many commits are read, and read again, in the memory that few take. With ASOF_TEST_FULL there are more.
func TestImportOfManyCommits(t *testing.T) {
	commits := 5_000
	if os.Getenv("ASOF_TEST_FULL") != "" {
		commits = 100_000
	}
	// held is the memory that is in use when all lines were read.
	held := func(r *gitRepository) (bytes int64) {
		rules, err := gitimport.ReadMap("map.yaml", []byte("sources: [{collection: tags, path: 'tags/{key}.json'}]"))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&before)
		repository, err := gitimport.Open(t.Context(), r.dir, rules)
		if err != nil {
			t.Fatal(err)
		}
		lines := repository.Lines(t.Context(), false)
		if _, err := io.Copy(io.Discard, lines); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.GC() // what is in pools is there for one more
		runtime.ReadMemStats(&after)
		if err := lines.Close(); err != nil {
			t.Fatal(err)
		}
		return int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	few, many := newGitRepository(t), newGitRepository(t)
	few.many(t, commits/10)
	many.many(t, commits)
	if less, more := held(few), held(many); more > 2*less {
		t.Errorf("%d commits hold %d bytes, and a tenth of them %d", commits, more, less)
	}
	store := newStore(t)
	for _, want := range []string{fmt.Sprint(commits, " versions added, 0 already there"), fmt.Sprint("0 versions added, ", commits, " already there")} {
		if status, out := many.importGit(t, store, "--sync=off"); status != 0 || !strings.Contains(out, want) {
			t.Fatalf("status %d: %s; want %s", status, out, want)
		}
	}
	if n := strings.Count(exportOf(t, store), "\n"); n != commits {
		t.Errorf("the store has %d versions", n)
	}
}

// What the schema or the store refuses is named by commit and file.
func TestImportOfRepositoryNamesCommits(t *testing.T) {
	r := newGitRepository(t)
	r.fill(t)
	r.commit(t, "tags/bad.json", `{"name": 1, "description": ""}`, "tags/c.json", tag("C"))
	bad := r.git(t, "", "rev-parse", "--short=12", "main")
	r.commit(t, "tags/d.json", `{"name": `)
	store := newStore(t)
	status, out := r.importGit(t, store)
	if want := fmt.Sprintf(`commit %s, "tags/bad.json": tags "bad": `, bad); status != 1 || !strings.Contains(out, want) || !strings.Contains(out, "11 versions added") {
		t.Errorf("%d %s, want %s", status, out, want)
	}
	status, out = r.importGit(t, store, "--lenient")
	for _, want := range []string{"2 versions added, 11 already there", "1 change of files that hold no document left out", `"tags/d.json": line 1: `} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s, want %s", status, out, want)
		}
	}
	// Another map makes other documents of what is there.
	if err := os.WriteFile(r.rules, []byte("sources: [{collection: tags, path: 'tags/{key}.json', drop: [description]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out := r.importGit(t, store, "--lenient"); status != 1 || !strings.Contains(out, "in the store with other content") || !strings.Contains(out, "commit ") {
		t.Errorf("%d %s", status, out)
	}
	if status, out := r.importGit(t, store, "-"); status != 2 || !strings.Contains(out, "not both") {
		t.Errorf("%d %s", status, out)
	}
	for args, want := range map[string]string{
		"--git=" + r.dir: "--map",
		"--git=" + r.dir + " --map=" + filepath.Join(r.dir, "none.yaml"): "none.yaml",
		"--git=" + filepath.Dir(r.rules) + " --map=" + r.rules:           "not a git repository",
		"--git=" + r.dir + " --map=" + filepath.Join(r.dir, "HEAD"):      "does not end in",
	} {
		if status, _, stderr := run(t, "", append([]string{"import", "--store=" + store}, strings.Fields(args)...)...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s, want %s", args, status, stderr, want)
		}
	}
}
