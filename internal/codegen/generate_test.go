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

// What is committed is what the generator makes from nothing, and while the resolvers do not compile.
func TestGeneratedIsCurrent(t *testing.T) {
	want := generated(t, codegentest.Root(t))
	dir := codegentest.Module(t)
	for _, name := range codegen.Generated() {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, dir, "resolvers/own.go", "package resolvers\n\nfunc broken( {\n")
	codegentest.Generate(t, dir)
	if diff := cmp.Diff(want, generated(t, dir)); diff != "" {
		t.Errorf("run go generate ./... (-committed +generated):\n%s", firstLines(diff, 40))
	}
}

func firstLines(s string, n int) string {
	lines := strings.SplitAfterN(s, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "")
}

// Where the schema is wrong, every file is left as it was.
func TestGenerateFailsCleanly(t *testing.T) {
	generator := codegentest.Generator(t)
	tests := []struct {
		name   string
		break_ func(t *testing.T, dir string)
		want   string
	}{
		{"mistake in the SDL", func(t *testing.T, dir string) {
			writeFile(t, dir, "schema.graphqls", "type Note @versioned {\n  text: Strin!\n}\n")
		}, "schema.graphqls:2:9: Undefined type Strin. Did you mean String?"},
		{"one name in Go", func(t *testing.T, dir string) {
			writeFile(t, dir, "schema.graphqls", "type Project @versioned { name: String! }\ntype ProjectFieldName @versioned { text: String! }\n")
		}, "two types, or what is made of them, have one name in Go; rename one: graph/model/versioned.go:"},
		{"no schema", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "schema.graphqls")); err != nil {
				t.Fatal(err)
			}
		}, "there is no schema.graphqls"},
		{"no configuration", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "gqlgen.yml")); err != nil {
				t.Fatal(err)
			}
		}, "gqlgen.yml"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := codegentest.Module(t)
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
