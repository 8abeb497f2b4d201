package arrows

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root is the module's directory.
const root = "../.."

// cut returns a package's path in the module.
func cut(path string) (inside string, ok bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// path is the reverse of cut.
func path(inside string) string {
	if inside == "." {
		return module
	}
	return module + "/" + inside
}

// imports returns what each package of the module imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		inside, _ := cut(words[0])
		all[inside] = words[1:]
	}
	return all
}

// Every package has its place, and imports nothing else. This looks also at
// generated code, which the linter does not.
func TestImports(t *testing.T) {
	table := arrows()
	all := imports(t)
	for inside, imported := range all {
		p, ok := table[inside]
		if !ok {
			t.Errorf("%s is in no place: say in arrows what it may import, and in .golangci.yml", inside)
			continue
		}
		for _, other := range imported {
			known, ok := cut(other)
			if ok && !slices.Contains(p.knows, known) && !slices.Contains(p.generated, known) {
				t.Errorf("%s imports %s, which it may not know", inside, known)
			}
			for _, word := range outside() {
				if beginning(other) == beginning(word) && !slices.Contains(p.speaks, word) {
					t.Errorf("%s imports %s", inside, other)
				}
			}
		}
	}
	for inside, p := range table {
		for _, other := range joined(p.knows, joined(p.generated, inside)...) {
			if _, ok := all[other]; !ok {
				t.Errorf("the place of %s names %s, which does not exist", inside, other)
			}
		}
	}
}

// beginning is what the packages of a thing outside have in common: a host and
// two words, or all of a package of Go itself.
func beginning(path string) string {
	words := strings.SplitN(path, "/", 4)
	switch {
	case words[0] == "modernc.org": // all of it is of SQLite
		return words[0]
	case strings.Contains(words[0], "."):
		return strings.Join(words[:min(3, len(words))], "/")
	}
	return path
}

// The linter flags every import that the table forbids, and no other. Its rules
// are tried on a module that has a package in each place, which imports all
// packages there are; these are empty.
func TestLinterHoldsArrows(t *testing.T) {
	table := arrows()
	dir := t.TempDir()
	tried := filepath.Join(dir, "tried")
	write(t, filepath.Join(tried, ".golangci.yml"), read(t, filepath.Join(root, ".golangci.yml")))
	// Where its own packages are internal, they may still be imported, as the
	// path begins with the module's.
	mod := "module " + module + "/tried\n\ngo 1.26\n"
	stand := func(required, version string) string {
		stub := filepath.Join(dir, "stubs", filepath.FromSlash(required))
		write(t, filepath.Join(stub, "go.mod"), "module "+required+"\n\ngo 1.26\n")
		mod += fmt.Sprintf("\nrequire %s %s\n\nreplace %s => %s\n", required, version, required, stub)
		return filepath.Join(dir, "stubs")
	}
	stubs := stand(module, "v0.0.0")
	for _, required := range []string{"github.com/99designs/gqlgen", "zombiezen.com/go/sqlite", "modernc.org/sqlite"} {
		stand(required, "v0.0.0")
	}
	for _, required := range []string{"github.com/vektah/gqlparser/v2", "go.mongodb.org/mongo-driver/v2"} {
		stand(required, "v2.0.0")
	}
	write(t, filepath.Join(tried, "go.mod"), mod)
	everything := outside()
	for inside := range table {
		everything = append(everything, path(inside))
	}
	slices.Sort(everything)
	for _, other := range everything {
		if other != web {
			write(t, filepath.Join(stubs, filepath.FromSlash(other), "stub.go"), "package stub\n")
		}
	}
	want := make(map[string][]string)
	for inside, p := range table {
		var file strings.Builder
		file.WriteString("package tried\n\n")
		for _, other := range everything {
			if other == path(inside) {
				continue // which cannot be
			}
			fmt.Fprintf(&file, "import _ %q\n", other)
			if !p.allows(other) {
				want[inside] = append(want[inside], other)
			}
		}
		write(t, filepath.Join(tried, filepath.FromSlash(inside), "tried.go"), file.String())
	}
	if diff := cmp.Diff(want, flagged(t, tried)); diff != "" {
		t.Errorf("-what is forbidden, +what the linter flags:\n%s", diff)
	}
	n := 0
	for _, forbidden := range want {
		n += len(forbidden)
	}
	t.Logf("%d packages, %d imports that are forbidden, %d that are not", len(table), n, len(table)*(len(everything)-1)-n)
}

// flagged returns what the linter does not want imported, by package.
func flagged(t *testing.T, dir string) map[string][]string {
	t.Helper()
	lint := exec.CommandContext(t.Context(), linter(t), "run", "--enable-only", "depguard", "--allow-parallel-runners", "--issues-exit-code", "0", "--output.json.path", "stdout", "--show-stats=false")
	lint.Dir = dir
	lint.Env = append(os.Environ(), "GOLANGCI_LINT_CACHE="+t.TempDir(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	var said strings.Builder
	lint.Stderr = &said
	out, err := lint.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", lint.Args, err, said.String())
	}
	var report struct {
		Issues []struct {
			FromLinter, Text string
			Pos              struct{ Filename string }
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, said.String())
	}
	message := regexp.MustCompile(`^import '(.+)' is not allowed from list '(.+)'`)
	found := make(map[string]map[string]bool)
	for _, issue := range report.Issues {
		m := message.FindStringSubmatch(issue.Text)
		if m == nil {
			t.Fatalf("%s: %s: %s", issue.Pos.Filename, issue.FromLinter, issue.Text)
		}
		inside := filepath.ToSlash(filepath.Dir(issue.Pos.Filename))
		if found[inside] == nil {
			found[inside] = make(map[string]bool)
		}
		found[inside][m[1]] = true
	}
	sorted := make(map[string][]string)
	for inside, all := range found {
		sorted[inside] = slices.Sorted(maps.Keys(all))
	}
	return sorted
}

// linter finds golangci-lint where go install puts it, or else in the path.
func linter(t *testing.T) string {
	t.Helper()
	const name = "golangci-lint"
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOBIN", "GOPATH").Output()
	if err != nil {
		t.Fatal(err)
	}
	places := strings.Split(string(out), "\n")
	for _, dir := range []string{places[0], filepath.Join(places[1], "bin")} {
		if found, err := exec.LookPath(filepath.Join(dir, name)); dir != "" && err == nil {
			return found
		}
	}
	found, err := exec.LookPath(name)
	switch {
	case err == nil:
		return found
	case os.Getenv("CI") != "":
		t.Fatalf("%s is not installed: %v", name, err)
	}
	t.Skipf("%s is not installed: %v", name, err)
	return ""
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
