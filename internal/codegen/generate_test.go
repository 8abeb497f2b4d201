package codegen_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/codegen"
	"github.com/asof/asof/internal/codegen/codegentest"
)

// generated reads all generated files of a module; missing ones are absent.
func generated(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range codegen.Generated() {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			out[name] = string(b)
		}
	}
	return out
}

func writeFile(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is committed is what the generator makes, also when it starts from
// nothing, and when it runs again.
func TestGeneratedIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("loads and generates the whole module")
	}
	root, dir := codegentest.Root(t), codegentest.Module(t)
	want := generated(t, root)
	for _, name := range codegen.Generated() {
		if want[name] == "" {
			t.Errorf("%s is not there; run go generate ./...", name)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []string{"from nothing", "again"} {
		codegentest.Generate(t, dir)
		got := generated(t, dir)
		for _, name := range codegen.Generated() {
			if got[name] != want[name] {
				t.Errorf("%s: %s differs from what is committed; run go generate ./... (-committed +generated):\n%s",
					run, name, firstLines(cmp.Diff(want[name], got[name]), 40))
			}
		}
	}
}

func firstLines(s string, n int) string {
	lines := strings.SplitAfterN(s, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "")
}

// A run that fails leaves every file as it was, and says what is wrong.
func TestGenerateFailsCleanly(t *testing.T) {
	if testing.Short() {
		t.Skip("loads the whole module")
	}
	generator := codegentest.Generator(t)
	tests := []struct {
		name   string
		break_ func(t *testing.T, dir string)
		want   string
	}{
		{"mistake in the SDL", func(t *testing.T, dir string) {
			writeFile(t, dir, "schema.graphqls", "type Note @versioned {\n  text: Strin!\n}\n")
		}, "schema.graphqls:2:3: Note.text: unknown type Strin; did you mean String?"},
		{"storage does not compile", func(t *testing.T, dir string) {
			writeFile(t, dir, "schema.graphqls", "type Note @versioned { text: String! }\n")
			writeFile(t, dir, "storage/model.go", "package storage\n\nfunc broken( {\n")
		}, "storage"},
		{"no configuration", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "gqlgen.yml")); err != nil {
				t.Fatal(err)
			}
		}, "gqlgen.yml"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := codegentest.Module(t)
			if err := os.Remove(filepath.Join(dir, "resolvers/versioned.go")); err != nil {
				t.Fatal(err) // one that was not there must not be there afterwards
			}
			before := generated(t, dir)
			test.break_(t, dir)
			cmd := exec.CommandContext(t.Context(), generator)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("no error; it said %q", out)
			}
			if !strings.Contains(string(out), test.want) {
				t.Errorf("it said %q, which does not contain %q", out, test.want)
			}
			if diff := cmp.Diff(before, generated(t, dir)); diff != "" {
				t.Errorf("files were changed:\n%s", firstLines(diff, 40))
			}
		})
	}
}

// Resolvers that do not compile do not keep the generator from running.
func TestGenerateWithBrokenResolvers(t *testing.T) {
	if testing.Short() {
		t.Skip("loads and generates the whole module")
	}
	dir := codegentest.Module(t)
	writeFile(t, dir, "resolvers/broken.go", "package resolvers\n\nfunc broken( {\n")
	writeFile(t, dir, "resolvers/versioned.resolvers.go", "package resolvers\n\nnot Go at all\n")
	codegentest.Generate(t, dir)
	if diff := cmp.Diff(generated(t, codegentest.Root(t)), generated(t, dir)); diff != "" {
		t.Errorf("what was generated differs:\n%s", firstLines(diff, 40))
	}
}
