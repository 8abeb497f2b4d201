// Package codegentest generates servers for other schemas than the module's
// own, in temporary directories.
//
// Invariants: the module's own files are only read, nothing is downloaded, and
// everything is removed when the test ends.
package codegentest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Module copies the module's sources into a temporary directory, without
// tests, and returns it.
func Module(t testing.TB) (dir string) {
	t.Helper()
	return copyModule(t, skipDir, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

// ModuleWithTests copies all of the module that its tests need, too.
func ModuleWithTests(t testing.TB) (dir string) {
	t.Helper()
	return copyModule(t, func(dir string) bool { return dir == "node_modules" || strings.HasPrefix(dir, ".") }, func(string) bool { return false })
}

// copyModule copies the module without the directories and files that are to
// be skipped.
func copyModule(t testing.TB, skipDir, skipFile func(name string) bool) (dir string) {
	t.Helper()
	root := Root(t)
	dir = t.TempDir()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && skipDir(d.Name()) {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		}
		if !d.Type().IsRegular() || skipFile(rel) {
			return nil
		}
		return copyFile(path, filepath.Join(dir, rel))
	})
	if err != nil {
		t.Fatalf("copy the module: %v", err)
	}
	return dir
}

// skipDir reports whether nothing in a directory of this name is needed to
// build the module.
func skipDir(name string) bool {
	return name == "testdata" || name == "node_modules" || name == "docs" || name == "e2e" || strings.HasPrefix(name, ".")
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since the directory was listed
		}
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// Root is the module's root directory.
func Root(t testing.TB) string {
	t.Helper()
	place, err := os.Getwd() // the directory of the package that is tested
	if err != nil {
		t.Fatal(err)
	}
	for dir := place; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatalf("no go.mod above %s", place)
	return ""
}

// Generator builds the generator from the module's own sources, so that it
// comes from the build cache.
func Generator(t testing.TB) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "generate")
	Run(t, Root(t), "go", "build", "-o", binary, "./internal/codegen/cmd")
	return binary
}

// Generate runs the generator in a directory and returns what it says; it
// fails the test when the generator does.
func Generate(t testing.TB, dir string) string {
	t.Helper()
	return Run(t, dir, Generator(t))
}

// Build makes a server for the given SDL and returns the program. It takes
// some seconds, most of them for compiling.
func Build(t testing.TB, sdl string) (binary string) {
	t.Helper()
	dir := Module(t)
	if err := os.WriteFile(filepath.Join(dir, "schema.graphqls"), []byte(sdl), 0o600); err != nil {
		t.Fatal(err)
	}
	Generate(t, dir)
	return Compile(t, dir)
}

// Compile builds the server in a directory that Module made.
func Compile(t testing.TB, dir string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "asof")
	Run(t, dir, "go", "build", "-o", binary, ".")
	return binary
}

// Run runs a program in a directory and returns what it wrote; it fails the test when the
// program fails.
func Run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// Query sends a query and returns the data of the answer. It fails the test
// when there are errors.
func Query(t testing.TB, url, query string) (data map[string]any) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Actor", "ada")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	var answer struct {
		Data   map[string]any
		Errors []any
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	if len(answer.Errors) > 0 {
		t.Fatalf("errors: %v", answer.Errors)
	}
	return answer.Data
}
