package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

// A store that is only looked at keeps its format, collections and indexes, so
// that the program that made it can go on.
func TestInspect(t *testing.T) {
	declared := []driver.Collection{
		{Name: "things", Indexes: []driver.Index{{Path: []string{"other"}, Kind: driver.KindString}}},
		{Name: "unknown", Indexes: []driver.Index{{Path: []string{"n"}, Kind: driver.KindString}}},
	}
	for _, name := range []string{"testdata/format-1.db", "testdata/format-2.db", "testdata/format-3.db"} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			file, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "copy.db")
			writeFile(t, path, string(file))
			before := shape(t, path)
			s, err := open(t.Context(), path, Options{Collections: declared, Clock: formatClock, Inspect: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
				t.Error(err)
			}
			logged := 0
			for _, err := range s.Log(t.Context(), &driver.LogQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				logged++
			}
			if logged != 4 {
				t.Errorf("%d versions in the log, want 4", logged)
			}
			for name, want := range map[string]int{"things": 1, "unknown": 0} {
				page, err := s.Query(t.Context(), &driver.Query{Collection: name, At: driver.Forever, Limit: 10})
				if err != nil || len(page) != want {
					t.Errorf("%s: %v, %v, want %d documents", name, page, err, want)
				}
			}
			if _, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: "w", Collection: "things", Key: "c", Op: driver.OpCreate, Data: []byte(`{}`)}); driver.CodeOf(err) != driver.CodeInvalid {
				t.Errorf("Commit: %v", err)
			}
			if _, err := s.Load(t.Context(), []driver.Version{{Collection: "things", Key: "c", RecordedAt: 1, Op: driver.OpImport, Data: []byte(`{}`)}}); driver.CodeOf(err) != driver.CodeInvalid {
				t.Errorf("Load: %v", err)
			}
			if _, err := s.Loaded(t.Context()); err != nil {
				t.Errorf("Loaded: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(before, shape(t, path)); diff != "" {
				t.Errorf("looking changed the file (-before +after):\n%s", diff)
			}
			s, err = open(t.Context(), path, Options{Collections: declared, Clock: formatClock})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if cmp.Equal(before, shape(t, path)) {
				t.Error("opening to write changed nothing, so this test shows nothing")
			}
		})
	}
	path := filepath.Join(t.TempDir(), "empty.db")
	writeFile(t, path, "")
	s, err := open(t.Context(), path, Options{Inspect: true})
	if driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("an empty file: %v, %v", s, err)
	}
}

// shape is what a file says of its format, and its collections and indexes.
func shape(t *testing.T, path string) (lines []string) {
	t.Helper()
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // only read
	for _, query := range []string{
		"PRAGMA user_version", "SELECT name || coalesce(sql, '') FROM sqlite_schema ORDER BY 1",
		"SELECT id || name FROM collections ORDER BY 1", "SELECT id || path FROM indexes ORDER BY 1", "SELECT count(*) FROM entries",
	} {
		err = errors.Join(err, sqlitex.ExecuteTransient(c, query, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			lines = append(lines, s.ColumnText(0))
			return nil
		}}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
