package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

func openThings(t *testing.T, path string, indexes ...driver.Index) *Store {
	t.Helper()
	s, err := open(t.Context(), path, Options{Collections: []driver.Collection{{Name: "things", Indexes: indexes}}, Sync: SyncOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func loadThings(t *testing.T, s *Store, key string, versions int, data string) {
	t.Helper()
	vs := make([]driver.Version, versions)
	for i := range vs {
		vs[i] = driver.Version{Collection: "things", Key: key, RecordedAt: driver.Instant(i + 1), Op: driver.OpImport, Data: []byte(data)}
	}
	if _, err := s.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
}

// One file has one lock, whatever it is called.
func TestOneLockForAllNames(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "asof.db"), filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	if _, err := open(t.Context(), link, Options{}); driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("a link to nothing: %v", err)
	}
	s := openThings(t, path)
	if _, err := open(t.Context(), link, Options{}); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Errorf("a second server by another name: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openThings(t, link)
	loadThings(t, s, "a", 1, `{}`)
	if stats, err := s.Stats(t.Context()); err != nil || stats.Bytes <= 4096 {
		t.Errorf("%+v, %v: the log is not counted", stats, err)
	}
}

func TestMemoryIsNoFile(t *testing.T) {
	if _, err := open(t.Context(), ":memory:", Options{}); driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("got %v", err)
	}
}

// However large documents are, a log holds few of them, also one of many keys;
// and reads in parts what it would read at once.
func TestLogHoldsFewBytes(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"))
	data := `{"a":"` + strings.Repeat("x", 256<<10) + `"}`
	keys := []string{"a", "b", "c", "d"}
	const versions = 40
	for _, key := range keys {
		loadThings(t, s, key, versions, data)
	}
	for name, q := range map[string]driver.LogQuery{
		"collection": {}, "under conditions": {Hints: driver.Hints{Authors: []string{""}, Ops: []driver.Op{driver.OpImport}}},
		"document": {Keys: keys[:1]}, "documents": {Keys: keys},
	} {
		for _, backward := range []bool{false, true} {
			q.Collections, q.Backward = []string{"things"}, backward
			streams, err := s.streams(t.Context(), &q)
			if err != nil {
				t.Fatal(err)
			}
			held := map[*driver.Version]bool{}
			for _, st := range streams {
				if err := st.fill(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, v := range st.rows {
					held[v] = true
				}
			}
			bytes := 0
			for v := range held {
				bytes += len(v.Data)
			}
			if most := batchBytes + 2*len(streams)*len(data); bytes == 0 || bytes > most {
				t.Errorf("%s, backward %v: %d bytes are held, at most %d should be", name, backward, bytes, most)
			}
			last := map[string]int64{}
			n := 0
			for v, err := range s.Log(t.Context(), &q) {
				if err != nil {
					t.Fatal(err)
				}
				n++
				before, first, until := v.Number-1, int64(1), driver.Instant(v.Number+1)
				if backward {
					before, first = v.Number+1, versions
				}
				if v.Number == versions {
					until = driver.Forever
				}
				if was, ok := last[v.Key]; ok && was != before || !ok && v.Number != first {
					t.Fatalf("%s, backward %v: %s@%d follows version %d", name, backward, v.Key, v.Number, was)
				}
				last[v.Key] = v.Number
				if v.SupersededAt != until {
					t.Errorf("%s, backward %v: %s@%d is superseded at %d", name, backward, v.Key, v.Number, v.SupersededAt)
				}
				if len(v.Data) != len(data) {
					t.Errorf("%s, backward %v: %s@%d has %d bytes", name, backward, v.Key, v.Number, len(v.Data))
				}
			}
			if want := versions * max(1, len(q.Keys)); n != want && len(q.Keys) > 0 || len(q.Keys) == 0 && n != versions*len(keys) {
				t.Errorf("%s, backward %v: %d versions", name, backward, n)
			}
		}
	}
}

// Nothing is after the end of time.
func TestLogBehindForever(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"))
	loadThings(t, s, "k2", 3, `{}`)
	for _, q := range []driver.LogQuery{
		{Collections: []string{"things"}, Keys: []string{"k2"}, After: &driver.LogPosition{At: driver.Forever, Collection: "things", Key: "k8"}},
		{Collections: []string{"things"}, After: &driver.LogPosition{At: driver.Forever, Collection: "z", Key: "k8"}},
	} {
		for v, err := range s.Log(t.Context(), &q) {
			t.Errorf("%+v: %+v, %v", q, v, err)
		}
	}
}

// When even the way back from a failed write fails, the next write finds it.
func TestWriterRecovers(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"), driver.Index{Path: []string{"n"}, Kind: driver.KindInt})
	write := func(key string) error {
		_, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: key, Collection: "things", Key: key, Op: driver.OpCreate, Data: []byte(`{"n":1}`)})
		return err
	}
	if err := write("a"); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := s.writer.submit(&request{ctx: t.Context(), run: func() error {
		ended, cancel := context.WithCancel(t.Context())
		defer s.writer.SetInterrupt(nil)
		return s.writer.transaction(func() error {
			if _, err := s.writer.load(s.byName["things"], &driver.Version{Key: "b", RecordedAt: 1, Data: []byte(`{"n":2}`)}, 1); err != nil {
				return err
			}
			// From here on the database answers nothing.
			s.writer.SetInterrupt(ended.Done())
			cancel()
			return broken
		})
	}})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := write(fmt.Sprint("c", i)); err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
}

// A read that panics leaves its connection as good as before.
func TestReadThatPanics(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"))
	for range 3 * s.opts.readers {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = s.read(t.Context(), func(*conn) error { panic("in a read") })
		}()
	}
	for range 3 * s.opts.readers {
		if _, err := s.Query(t.Context(), &driver.Query{Collection: "things", At: driver.Forever}); err != nil {
			t.Fatal(err)
		}
	}
}

// A read that panics in the middle of a statement does not hold on to what it saw:
// neither its connection nor others are given what is of before a later write.
func TestReadThatPanicsInAStatement(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, readers: 1})
	commit := func(key string, expected int64) {
		t.Helper()
		w := &driver.Write{
			ID: fmt.Sprint(key, expected), Collection: benchCollection, Key: key, Expected: expected, Op: driver.OpUpdate,
			Data: fmt.Appendf(nil, `{"stars":%d}`, expected),
		}
		if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
			t.Fatal(err)
		}
	}
	commit("a", 0)
	commit("b", 0)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = s.read(t.Context(), func(c *conn) error {
			st, err := c.Prepare(`SELECT key FROM documents`)
			if err != nil {
				return err
			}
			return c.rows(st, func(*sqlite.Stmt) error { panic("in a statement") })
		})
	}()
	commit("a", 1)
	got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", At: driver.Forever}}, nil)
	if err != nil || got[0].Number != 2 {
		t.Errorf("got %+v, %v after version 2 was written", got, err)
	}
}

// A connection keeps its snapshot while nothing is committed, but not when a
// checkpoint has asked for it.
func TestSnapshotsAreKeptAndLetGo(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, readers: 1})
	read := func(meanwhile func()) (open bool) {
		c, err := s.readers.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.integer("SELECT count(*) FROM documents"); err != nil {
			t.Fatal(err)
		}
		meanwhile()
		s.readers.release(c)
		return !c.AutocommitEnabled()
	}
	for range 2 {
		if !read(func() {}) {
			t.Error("the snapshot was not kept")
		}
	}
	s.readers.ask()
	if !s.readers.free[0].AutocommitEnabled() {
		t.Error("the snapshot of an idle connection was not let go")
	}
	if read(s.readers.ask) {
		t.Error("a snapshot was kept that a checkpoint has asked for")
	}
	if !read(func() {}) {
		t.Error("snapshots are not kept any more")
	}
	benchLoad(t, s, benchVersions(5, 10))
	if got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: benchKey(0), At: driver.Forever}}, nil); err != nil || got[0] == nil {
		t.Errorf("an old snapshot was read: %v, %v", got, err)
	}
}
