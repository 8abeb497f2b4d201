package transfer

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// names lists what is in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestCreateFile(t *testing.T) {
	for _, name := range []string{"x.ndjson", "x.ndjson.gz", "x.ndjson.zst"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			f, err := CreateFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, "hello\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file has its name before it is complete: %v", err)
			}
			if err := f.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got := names(t, dir); len(got) != 1 || got[0] != name {
				t.Errorf("the directory holds %q", got)
			}
			in, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = in.Close() }()
			src, err := openSource(in, name)
			if err != nil {
				t.Fatal(err)
			}
			defer src.close()
			text, err := io.ReadAll(src)
			if err != nil || string(text) != "hello\n" {
				t.Errorf("read %q, %v", text, err)
			}
		})
	}
}

// A file that nobody else may read is not replaced by one that others may.
func TestCreateFileKeepsPermissions(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0o666} {
		path := filepath.Join(t.TempDir(), "x.ndjson")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(path) // some systems know fewer permissions
		if err != nil {
			t.Fatal(err)
		}
		f, err := CreateFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if after.Mode() != before.Mode() {
			t.Errorf("%v, want %v", after.Mode(), before.Mode())
		}
	}
}

func TestCreateFileAbandoned(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.ndjson")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := CreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "half"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err == nil {
		t.Error("a closed file can be committed")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "before\n" {
		t.Errorf("the file that was there is now %q, %v", got, err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the directory holds %q", got)
	}
}

func TestCreateFileThroughLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	f, err := CreateFile(link)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := io.WriteString(f, "new\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "new\n" {
		t.Errorf("the target holds %q, %v", got, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is one no more: %v, %v", info, err)
	}
}

func TestCreateFileErrors(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "no", "where")} {
		if f, err := CreateFile(path); err == nil {
			t.Errorf("%s was created", path)
			_ = f.Close()
		}
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("the directory holds %q", got)
	}
}

func TestCreateFileInPlace(t *testing.T) {
	f, err := CreateFile(os.DevNull)
	if err != nil {
		t.Skip(err)
	}
	if _, err := io.WriteString(f, "hello\n"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Commit(), f.Close()); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s was replaced: %v, %v", os.DevNull, info, err)
	}
}
