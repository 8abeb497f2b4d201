//go:build unix

package sqlitestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A store whose files somebody deletes, moves or replaces takes no writes any
// more, which would be lost, and is not ready.
func TestFilesThatGo(t *testing.T) {
	remove := func(t *testing.T, name string) {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	move := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		happen func(t *testing.T, path string)
		want   []string // of the error; none: all is well
	}{
		{"nothing", func(*testing.T, string) {}, nil},
		{"deleted", func(t *testing.T, path string) { remove(t, path) }, []string{"asof.db was deleted or moved away"}},
		{"all deleted", func(t *testing.T, path string) {
			for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
				remove(t, path+suffix)
			}
		}, []string{"was deleted or moved away"}},
		{"the log deleted", func(t *testing.T, path string) { remove(t, path+"-wal") }, []string{"asof.db-wal was deleted or moved away"}},
		{"the lock deleted", func(t *testing.T, path string) { remove(t, path+".lock") }, []string{"asof.db.lock was deleted or moved away"}},
		{"moved", func(t *testing.T, path string) { move(t, path, path+".old") }, []string{"asof.db was deleted or moved away"}},
		{"replaced", func(t *testing.T, path string) {
			backup, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path+".backup", string(backup))
			move(t, path+".backup", path)
		}, []string{"asof.db was replaced"}},
		{"written into", func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "asof.db")
			s := openThings(t, path)
			loadThings(t, s, "a", 2, `{}`)
			commit := func() error {
				_, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: "1", Collection: "things", Key: "b", Op: driver.OpCreate, Data: []byte(`{}`)})
				return err
			}
			load := func() error {
				_, err := s.Load(t.Context(), []driver.Version{{Collection: "things", Key: "c", RecordedAt: 9, Op: driver.OpImport, Data: []byte(`{}`)}})
				return err
			}
			c.happen(t, path)
			for _, call := range []struct {
				name string
				run  func() error
			}{{"Commit", commit}, {"Load", load}, {"Ping", func() error { return s.Ping(t.Context()) }}} {
				err := call.run()
				if len(c.want) == 0 && err != nil {
					t.Errorf("%s: %v", call.name, err)
				}
				for _, want := range c.want {
					if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v (%q), want %q", call.name, err, driver.CodeOf(err), want)
					}
					if refusal := driver.RefusalOf(err); refusal != "the store takes no writes: its file was removed or replaced" {
						t.Errorf("%s: clients are told %q", call.name, refusal)
					}
				}
			}
			got, err := s.Get(t.Context(), "things", []driver.Ref{{Key: "a", Number: 2}, {Key: "b", At: driver.Forever}}, nil)
			if err != nil || got[0] == nil || (got[1] == nil) != (len(c.want) > 0) {
				t.Errorf("reading: %v, %v", got, err)
			}
		})
	}
}

// What was missed once may have been changed before it came back.
func TestFileThatComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	s := openThings(t, path)
	for _, move := range [][2]string{{path, path + ".old"}, {path + ".old", path}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
		if err := s.Ping(t.Context()); driver.CodeOf(err) != driver.CodeUnavailable {
			t.Errorf("after %s became %s: %v", move[0], move[1], err)
		}
	}
	// Opened again it is as good as before.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openThings(t, path).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
