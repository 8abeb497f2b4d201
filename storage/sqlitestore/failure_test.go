package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

// What an error means: the codes are those that the other engines give for the like.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code driver.Code
		text string
	}{
		{"given up", context.Canceled, driver.CodeUnavailable, ""},
		{"out of time", context.DeadlineExceeded, driver.CodeUnavailable, ""},
		{"a full disk", sqlite.ResultFull.ToError(), driver.CodeUnavailable, "make room"},
		{"a disk that fails", sqlite.ResultIOErr.ToError(), driver.CodeUnavailable, ""},
		{"held by another program", sqlite.ResultBusy.ToError(), driver.CodeUnavailable, ""},
		{"a file that cannot be opened", sqlite.ResultCantOpen.ToError(), driver.CodeUnavailable, ""},
		{"a file that takes no writes", sqlite.ResultReadOnly.ToError(), driver.CodeUnavailable, "check the permissions"},
		{"no rights", sqlite.ResultPerm.ToError(), driver.CodeUnavailable, "check the permissions"},
		{"a damaged file", sqlite.ResultCorrupt.ToError(), driver.CodeInternal, "restore it from a backup"},
		{"no database", sqlite.ResultNotADB.ToError(), driver.CodeInternal, "restore it from a backup"},
		{"a document that is too large", sqlite.ResultTooBig.ToError(), driver.CodeInvalid, "too large"},
		{"an unknown error", sqlite.ResultError.ToError(), driver.CodeInternal, ""},
		{"an error of another kind", errors.New("broken"), driver.CodeInternal, "broken"},
		{"a conflict", &driver.ConflictError{Lost: []driver.Conflict{{Actual: 3}}}, driver.CodeConflict, "is at version 3"},
		{"an error with a code", invalidf("wrong"), driver.CodeInvalid, "wrong"},
	} {
		wrapped := wrap(fmt.Errorf("doing it: %w", c.err), "working")
		if driver.CodeOf(wrapped) != c.code || !strings.Contains(wrapped.Error(), c.text) || !errors.Is(wrapped, c.err) {
			t.Errorf("%s: %v (%q), want %q with code %q", c.name, wrapped, driver.CodeOf(wrapped), c.text, c.code)
		}
	}
}

// Clients are told that nothing was written where that is certain, and only
// there.
func TestCertainErrors(t *testing.T) {
	const no = "the store takes no writes now: "
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"a full disk", sqlite.ResultFull.ToError(), no + "its disk is full"},
		{"a full disk before the end", uncommitted{sqlite.ResultFull.ToError()}, no + "its disk is full"},
		{"a file that may not grow", sqlite.ResultIOErrWrite.ToError(), no + "its file cannot be written"},
		{"a disk that fails", sqlite.ResultIOErrFsync.ToError(), ""},
		{"a disk that fails before the end", uncommitted{sqlite.ResultIOErrFsync.ToError()}, no + "its disk fails"},
		{"a file that takes no writes", sqlite.ResultReadOnly.ToError(), ""},
		{"a file that takes no writes before the end", uncommitted{sqlite.ResultReadOnlyDBMoved.ToError()}, no + "its file cannot be written"},
		{"held by another program", sqlite.ResultBusy.ToError(), ""},
		{"held by another program before the end", uncommitted{fmt.Errorf("beginning: %w", sqlite.ResultBusySnapshot.ToError())}, no + "another program holds its file"},
		{"a damaged file before the end", uncommitted{sqlite.ResultCorrupt.ToError()}, ""}, // the code says it
		{"refused before", uncommitted{driver.Refused("why", driver.Errorf(driver.CodeUnavailable, "closed"))}, "why"},
	} {
		if got := driver.RefusalOf(wrap(c.err, "writing")); got != c.want {
			t.Errorf("%s: clients are told %q, want %q", c.name, got, c.want)
		}
	}
}

// filled is a store of a few hundred documents that is closed again.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "asof.db")
	s, err := open(t.Context(), path, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), benchVersions(300, 600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that another program wrote into, or that is damaged, is found by a
// check, and read no further than it is sound.
func TestForeignWrites(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, path string)
		reads bool // reading it is an error as well
	}{
		{"a number that was changed", func(t *testing.T, path string) { execSQL(t, path, "UPDATE documents SET number = number + 1") }, false},
		{"a version that was removed", func(t *testing.T, path string) {
			execSQL(t, path, "DELETE FROM versions WHERE id = (SELECT min(id) FROM versions)")
		}, false},
		{"a damaged page", func(t *testing.T, path string) {
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			// Behind the pages of the schema.
			for at := len(file) / 2; at < len(file); at++ {
				file[at] = 0xff
			}
			writeFile(t, path, string(file))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filled(t)
			c.spoil(t, path)
			s, err := open(t.Context(), path, Options{Collections: benchDeclared()})
			if err != nil {
				if driver.CodeOf(err) != driver.CodeInternal {
					t.Errorf("Open: %v (%q)", err, driver.CodeOf(err))
				}
				return
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Log(err)
				}
			}()
			problems := 0
			err = s.Check(t.Context(), func(string) { problems++ })
			if problems == 0 && driver.CodeOf(err) != driver.CodeInternal {
				t.Errorf("Check found nothing: %v", err)
			}
			if !c.reads {
				return
			}
			_, err = s.Query(t.Context(), &driver.Query{Collection: benchCollection, At: driver.Forever})
			if driver.CodeOf(err) != driver.CodeInternal || !strings.Contains(err.Error(), "restore it from a backup") {
				t.Errorf("Query: %v (%q)", err, driver.CodeOf(err))
			}
		})
	}
}

// A program that holds the file does not make calls hang past their deadline,
// and when it is gone, everything goes on.
func TestFileIsHeld(t *testing.T) {
	path := filled(t)
	s, err := open(t.Context(), path, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	other, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenWAL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := sqlitex.ExecuteTransient(other, "BEGIN IMMEDIATE", nil); err != nil {
		t.Fatal(err)
	}
	write := &driver.Write{ID: "one", Collection: benchCollection, Key: "new", Op: driver.OpCreate, Data: []byte(`{}`)}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := driver.CommitOne(ctx, s, write)
		ended <- err
	}()
	select {
	case err := <-ended:
		if driver.CodeOf(err) != driver.CodeUnavailable || driver.RefusalOf(err) == "" {
			t.Errorf("Commit: %v (%q), refused: %q", err, driver.CodeOf(err), driver.RefusalOf(err))
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("Commit hangs past its deadline")
	}
	if _, err := s.Query(t.Context(), &driver.Query{Collection: benchCollection, At: driver.Forever, Limit: 1}); err != nil {
		t.Errorf("Query: %v", err)
	}
	if err := sqlitex.ExecuteTransient(other, "ROLLBACK", nil); err != nil {
		t.Fatal(err)
	}
	if v, err := driver.CommitOne(t.Context(), s, write); err != nil || v.Number != 1 {
		t.Errorf("Commit, when the other program let go: %v, %v", v, err)
	}
}

// A COMMIT that reports an error may have happened. The write is then reported as
// failed, and what comes after fits to what is in the file.
func TestCommitThatHappenedAndFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	fail := false
	opts := Options{Collections: benchDeclared(), Sync: SyncOff, afterCommit: func() error {
		if fail {
			return errors.New("nobody knows")
		}
		return nil
	}}
	s, err := open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(6) {
		fail = n%2 == 1
		if _, err := s.Load(t.Context(), []driver.Version{{Collection: benchCollection, Key: fmt.Sprint("loaded", n), RecordedAt: 1, Op: driver.OpImport, Data: []byte(`{}`)}}); (err != nil) != fail {
			t.Errorf("load %d: %v", n, err)
		}
		w := &driver.Write{ID: fmt.Sprint(n), Collection: benchCollection, Key: "a", Expected: n, Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"stars":%d}`, n)}
		if _, err := driver.CommitOne(t.Context(), s, w); (err != nil) != fail || driver.RefusalOf(err) != "" {
			t.Errorf("commit %d: %v, refused: %q", n, err, driver.RefusalOf(err))
		}
		got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", At: driver.Forever}, {Key: fmt.Sprint("loaded", n), At: driver.Forever}}, nil)
		if err != nil || got[0] == nil || got[0].Number != n+1 || got[1] == nil {
			t.Errorf("after commit %d: %+v, %v", n, got, err)
		}
	}
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Writes that were committed together, which may have happened, are not reported
// as certain to be lost.
func TestUncertainBatchIsRefused(t *testing.T) {
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), Options{
		Collections: benchDeclared(), Sync: SyncOff, afterCommit: func() error { return errors.New("nobody knows") },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	begun, gate := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 3)
	go func() {
		ended <- s.writer.submit(&request{ctx: t.Context(), run: func() error { close(begun); <-gate; return nil }})
	}()
	<-begun
	for i := range 2 {
		go func() {
			_, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: fmt.Sprint(i), Collection: benchCollection, Key: fmt.Sprint(i), Op: driver.OpCreate, Data: []byte(`{}`)})
			ended <- err
		}()
	}
	for len(s.writer.queue) < 2 {
		runtime.Gosched()
	}
	close(gate)
	failed := 0
	for range 3 {
		if err := <-ended; err != nil {
			failed++
			if driver.CodeOf(err) != driver.CodeInternal || driver.RefusalOf(err) != "" {
				t.Errorf("%v (%q), refused: %q", err, driver.CodeOf(err), driver.RefusalOf(err))
			}
		}
	}
	if failed != 2 {
		t.Errorf("%d writes failed, want both", failed)
	}
}

// Where the instant of the last load cannot be read again, the one that is known stays.
func TestUnreadableLoadIsKept(t *testing.T) {
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), Options{Collections: benchDeclared(), Sync: SyncOff})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), []driver.Version{{Collection: benchCollection, Key: "a", RecordedAt: 1, Op: driver.OpImport, Data: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	before, err := s.Loaded(t.Context())
	if err != nil || before == 0 {
		t.Fatal(before, err)
	}
	if err := s.writer.submit(&request{ctx: t.Context(), run: func() error {
		if err := sqlitex.ExecuteTransient(s.writer.Conn, "ALTER TABLE loaded RENAME TO elsewhere", nil); err != nil {
			return err
		}
		if err := s.readLoaded(); err == nil {
			t.Error("it is read")
		}
		return nil
	}}); err != nil {
		t.Error(err)
	}
	if after, err := s.Loaded(t.Context()); err != nil || after != before {
		t.Errorf("the last load was at %d (%v), want %d", after, err, before)
	}
	_ = s.Close()
}

// A load that is refused leaves nothing of what it was to write in memory.
func TestRefusedLoadIsForgotten(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"))
	vs := make([]driver.Version, 3)
	for i := range vs {
		vs[i] = driver.Version{Collection: "things", Key: fmt.Sprint(i % 2), RecordedAt: driver.Instant(9 - i), Op: driver.OpImport, Data: []byte(`{}`)}
	}
	if _, err := s.Load(t.Context(), vs); driver.CodeOf(err) != driver.CodeInvalid {
		t.Fatalf("a version before the last one: %v", err)
	}
	if kept := s.writer.added[:cap(s.writer.added)]; len(kept) > 0 {
		t.Errorf("%d versions are kept", len(kept))
	}
}
