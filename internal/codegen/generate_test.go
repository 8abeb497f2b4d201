package codegen_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// What is committed is what the generator makes: from nothing, again over what
// is there, and while the resolvers do not compile.
func TestGeneratedIsCurrent(t *testing.T) {
	root, module, generator := codegentest.Root(t), codegentest.Module(t), codegentest.Generator(t)
	runs := []struct {
		name    string
		prepare func(dir, name string)
	}{
		{"from nothing", func(dir, name string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}},
		{"again, with broken resolvers", func(dir, name string) {
			if strings.HasPrefix(name, "resolvers/") {
				writeFile(t, dir, name, "package resolvers\n\nnot Go at all\n")
				writeFile(t, dir, "resolvers/own.go", "package resolvers\n\nfunc broken( {\n")
			}
		}},
	}
	for _, schema := range []string{".", "internal/fixture"} {
		dir := filepath.Join(module, schema)
		want := generated(t, filepath.Join(root, schema))
		for _, run := range runs {
			for _, name := range codegen.Generated() {
				if want[name] == "" {
					t.Errorf("%s/%s is not there; run go generate ./...", schema, name)
				}
				run.prepare(dir, name)
			}
			codegentest.Run(t, dir, generator)
			got := generated(t, dir)
			for _, name := range codegen.Generated() {
				if got[name] != want[name] {
					t.Errorf("%s: %s/%s differs from what is committed; run go generate ./... (-committed +generated):\n%s",
						run.name, schema, name, firstLines(cmp.Diff(want[name], got[name]), 40))
				}
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
		}, "storage/model.go:3:14: "},
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

// Who interrupts it has the files that were there.
func TestGenerateIsInterrupted(t *testing.T) {
	const executor = "graph/generated.go"
	dir := codegentest.Module(t)
	before := generated(t, dir)
	cmd := exec.CommandContext(t.Context(), codegentest.Generator(t))
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if _, err := os.Stat(filepath.Join(dir, executor)); err != nil { // gqlgen removes it first
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended (%v) and had never removed %s", err, executor)
		case <-time.After(time.Millisecond):
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	if diff := cmp.Diff(before, generated(t, dir)); diff != "" {
		t.Errorf("files were changed:\n%s", firstLines(diff, 40))
	}
}
