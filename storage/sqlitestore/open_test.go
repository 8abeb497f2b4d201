package sqlitestore

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

var update = flag.Bool("update", false, "write the file in testdata anew; only ever before its format is released")

const formatFile = "testdata/format-4.db"

// formatClock stands still, so that the file is the same whenever it is made.
func formatClock() time.Time { return time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC) }

func formatDeclared() []driver.Collection {
	return []driver.Collection{{Name: "things", Indexes: []driver.Index{
		{Path: []string{"n"}, Kind: driver.KindInt},
		{Path: []string{"tags"}, Kind: driver.KindString, List: true},
	}}}
}

// writeFormat fills a store with what TestStoredFormat expects.
func writeFormat(t *testing.T, path string) {
	t.Helper()
	now := formatClock().Add(-time.Microsecond) // the load takes an instant
	s, err := open(t.Context(), path, Options{Collections: formatDeclared(), Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), []driver.Version{
		{Collection: "things", Key: "a", RecordedAt: 1000, Op: driver.OpImport, Author: "ann", Message: "first", Group: "g", Changed: []string{"n", "tags"}, Data: []byte(`{"n":1,"tags":["x","y"]}`)},
		{Collection: "things", Key: "b", RecordedAt: 2000, Op: driver.OpImport, Author: "bob", Data: []byte(`{"n":2,"tags":["y"]}`)},
	}); err != nil {
		t.Fatal(err)
	}
	now = formatClock()
	for _, w := range []driver.Write{
		{ID: "first", Collection: "things", Key: "a", Expected: 1, Op: driver.OpUpdate, Author: "ann", Changed: []string{"n"}, Data: []byte(`{"n":3,"tags":["x"]}`)},
		{ID: "2d1d7a5e-7f63-4a0b-9d9c-6b1f6a6f4c1e", Collection: "things", Key: "b", Expected: 1, Op: driver.OpDelete, Deleted: true, Author: "eve"},
	} {
		if _, err := driver.CommitOne(t.Context(), s, &w); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A file that another build made opens and reads as it did then.
func TestStoredFormat(t *testing.T) {
	if *update {
		if err := os.Remove(formatFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		writeFormat(t, formatFile)
		if err := os.Remove(formatFile + ".lock"); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(formatFile)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	writeFile(t, path, string(file))
	s, err := open(t.Context(), path, Options{Collections: formatDeclared(), Clock: formatClock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Fatal(err)
	}
	var got []string
	for v, err := range s.Log(t.Context(), &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s@%d [%d, %d) op %d by %s %q %s %v %s", v.Key, v.Number, v.RecordedAt, v.SupersededAt, v.Op, v.Author, v.Message, v.Group, v.Changed, v.Data))
	}
	want := []string{
		`a@1 [1000, 1714564800000000) op 5 by ann "first" g [n tags] {"n":1,"tags":["x","y"]}`,
		`b@1 [2000, 1714564800000001) op 5 by bob ""  [] {"n":2,"tags":["y"]}`,
		`a@2 [1714564800000000, 9223372036854775807) op 2 by ann ""  [n] {"n":3,"tags":["x"]}`,
		`b@2 [1714564800000001, 9223372036854775807) op 3 by eve ""  [] `,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	y := driver.Any{Field: driver.Field{Path: []string{"tags"}, Kind: driver.KindString}, Filter: driver.Compare{Field: driver.Field{Kind: driver.KindString}, Op: driver.Eq, Value: "y"}}
	for at, want := range map[driver.Instant]int{999: 0, 1000: 1, 2000: 2, driver.Forever: 0} {
		if vs, err := s.Query(t.Context(), &driver.Query{Collection: "things", At: at, Filter: y}); err != nil || len(vs) != want {
			t.Errorf("tagged y at %d: %d documents, %v; want %d", at, len(vs), err, want)
		}
	}
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if loaded, err := s.Loaded(t.Context()); err != nil || loaded == 0 || loaded > now {
		t.Errorf("the last load was at %s, %v; the file holds loaded versions, and now is %s", loaded, err, now)
	}
	// An attempt that was committed then is not applied again.
	v, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: "first", Collection: "things", Key: "a", Expected: 1, Op: driver.OpUpdate, Data: []byte(`{}`)})
	if err != nil || v.Number != 2 {
		t.Errorf("an attempt of before: %+v, %v", v, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	ours := func(t *testing.T, path string, queries ...string) {
		t.Helper()
		writeFormat(t, path)
		execSQL(t, path, queries...)
	}
	for _, test := range []struct {
		name  string
		make  func(t *testing.T, path string)
		code  driver.Code
		words string
	}{
		{"an older format", func(t *testing.T, path string) { ours(t, path, "PRAGMA user_version = 3") }, driver.CodeInvalid, "export it with the program that made it"},
		{"a newer format", func(t *testing.T, path string) { ours(t, path, "PRAGMA user_version = 99") }, driver.CodeInvalid, "use a newer version of asof"},
		{"another program's database", func(t *testing.T, path string) { execSQL(t, path, "CREATE TABLE t(x)") }, driver.CodeInvalid, "another program"},
		{"no database", func(t *testing.T, path string) { writeFile(t, path, strings.Repeat("text ", 1000)) }, driver.CodeInvalid, "not a database of asof"},
		{"a damaged schema", func(t *testing.T, path string) {
			ours(t, path)
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			copy(file[100:4096], strings.Repeat("\xff", 3996))
			writeFile(t, path, string(file))
		}, driver.CodeInternal, "restore it from a backup"},
		{"a directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, driver.CodeInvalid, "is a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "asof.db")
			test.make(t, path)
			s, err := open(t.Context(), path, Options{})
			if err == nil {
				_ = s.Close()
				t.Fatal("it opened")
			}
			if driver.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.words) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %s: %v; want %s with %q and the path", driver.CodeOf(err), err, test.code, test.words)
			}
		})
	}
	t.Run("no such directory", func(t *testing.T) {
		_, err := open(t.Context(), filepath.Join(t.TempDir(), "none", "asof.db"), Options{})
		if driver.CodeOf(err) != driver.CodeInvalid {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a directory that cannot be written", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		_, err := open(t.Context(), filepath.Join(dir, "asof.db"), Options{})
		if driver.CodeOf(err) != driver.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestTwoServersOnOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	first, err := open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := open(t.Context(), path, Options{}); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "another process is using it") {
		t.Errorf("got %v, %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// A full disk fails the writes, loses nothing, and is over when there is room.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	s, err := open(t.Context(), path, Options{Collections: benchDeclared(), maxPages: 64})
	if err != nil {
		t.Fatal(err)
	}
	var full error
	n := int64(0)
	write := func(s *Store) error {
		_, err := driver.CommitOne(t.Context(), s, &driver.Write{
			ID: fmt.Sprint("w", n), Collection: benchCollection, Key: "k", Expected: n, Op: driver.OpUpdate, Data: benchData(1, int(n), int(n)),
		})
		if err == nil {
			n++
		}
		return err
	}
	for full == nil && n < 10_000 {
		full = write(s)
	}
	if driver.CodeOf(full) != driver.CodeUnavailable || !strings.Contains(full.Error(), "disk is full") {
		t.Fatalf("after %d writes: %v", n, full)
	}
	if why := driver.RefusalOf(full); why != "the store takes no writes now: its disk is full" {
		t.Errorf("clients are told %q", why)
	}
	if _, err := s.Load(t.Context(), benchVersions(500, 500)); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Errorf("Load: %v", err)
	}
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Versions != n {
		t.Errorf("%d versions, %v; want the %d that were acknowledged", stats.Versions, err, n)
	}
	if _, err := s.writer.integer("PRAGMA max_page_count = 100000"); err != nil { // more room
		t.Fatal(err)
	}
	for range 100 {
		if err := write(s); err != nil {
			t.Fatalf("with room again: %v", err)
		}
	}
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Indexes follow their declarations when the store opens.
func TestDeclarationsChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	declarations := [][]driver.Index{
		nil,
		benchDeclared()[0].Indexes,
		benchDeclared()[0].Indexes[:1],
		{{Path: []string{"current_release", "tag"}, Kind: driver.KindString}, benchDeclared()[0].Indexes[2]},
	}
	for i, indexes := range declarations {
		s, err := open(t.Context(), path, Options{Collections: []driver.Collection{{Name: benchCollection, Indexes: indexes}}, epochSlack: 20})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			benchLoad(t, s, benchVersions(50, 2000))
		}
		if got := len(s.byName[benchCollection].indexes); got != len(indexes) {
			t.Errorf("opened with %d indexes, want %d", got, len(indexes))
		}
		if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func execSQL(t *testing.T, path string, queries ...string) {
	t.Helper()
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range queries {
		if err := sqlitex.ExecuteTransient(c, query, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A store that is only looked at keeps its collections and indexes, so that the program
// that made it can go on.
func TestInspect(t *testing.T) {
	declared := []driver.Collection{
		{Name: "things", Indexes: []driver.Index{{Path: []string{"other"}, Kind: driver.KindString}}},
		{Name: "unknown", Indexes: []driver.Index{{Path: []string{"n"}, Kind: driver.KindString}}},
	}
	path := filepath.Join(t.TempDir(), "asof.db")
	writeFormat(t, path)
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
	empty := filepath.Join(t.TempDir(), "empty.db")
	writeFile(t, empty, "")
	s, err = open(t.Context(), empty, Options{Inspect: true})
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
