package sqlitestore

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

// A copy that another program makes with SQLite's own means, of a file that a
// server writes to meanwhile, is a store: sound, with what had been acknowledged
// when the copy was begun, and with nothing but the first of all commits.
func TestBackupBesideAServer(t *testing.T) {
	killWire()
	for name, backup := range map[string]func(t *testing.T, s *serving, from *sqlite.Conn, path string){
		"VACUUM INTO":          vacuumInto,
		".backup at once":      backupAtOnce,
		".backup page by page": backupInSteps,
	} {
		t.Run(name, func(t *testing.T) {
			s := startServing(t)
			from, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := from.Close(); err != nil {
					t.Error(err)
				}
			}()
			before, copied := s.count(), filepath.Join(t.TempDir(), "copy.db")
			for n := 0; ; n++ { // until there was a write in the meantime
				if n > 0 {
					before, copied = s.count(), filepath.Join(t.TempDir(), "copy.db")
				}
				backup(t, s, from, copied)
				if s.count() > before || t.Failed() {
					break
				}
			}
			acknowledged := s.end(t)[:before]
			all, there := versionsOf(t, s.path), versionsOf(t, copied)
			if len(there) > len(all) {
				t.Fatalf("the copy has %d versions of %d", len(there), len(all))
			}
			for i, v := range there {
				if v != all[i] {
					t.Fatalf("version %d of all is in the copy\n%.200s, and was\n%.200s", i, v, all[i])
				}
			}
			for _, v := range acknowledged {
				if !slices.Contains(there, inWords(v)) {
					t.Errorf("was acknowledged before the copy was begun, and is not there: %s", inWords(v))
				}
			}
		})
	}
}

func vacuumInto(t *testing.T, _ *serving, from *sqlite.Conn, path string) {
	t.Helper()
	if err := sqlitex.ExecuteTransient(from, "VACUUM INTO ?1", &sqlitex.ExecOptions{Args: []any{path}}); err != nil {
		t.Fatal(err)
	}
}

func backupAtOnce(t *testing.T, _ *serving, from *sqlite.Conn, path string) {
	t.Helper()
	withBackup(t, from, path, func(b *sqlite.Backup) {
		if more, err := b.Step(-1); more || err != nil {
			t.Fatalf("there is more: %t; %v", more, err)
		}
	})
}

// backupInSteps copies as the program sqlite3 does, 100 pages at a time. A write
// between two of them makes it begin again, so that it does not end before there
// is a pause.
func backupInSteps(t *testing.T, s *serving, from *sqlite.Conn, path string) {
	t.Helper()
	const pages, again = 100, 30
	withBackup(t, from, path, func(b *sqlite.Backup) {
		for range again {
			s.next()
			more, err := b.Step(pages)
			if err != nil {
				t.Fatal(err)
			}
			if copied := b.PageCount() - b.Remaining(); !more || copied != pages {
				t.Errorf("after a write, %d pages of %d are copied; more: %t", copied, b.PageCount(), more)
			}
		}
		s.pause()
		for more, err := true, error(nil); more; {
			if more, err = b.Step(pages); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func withBackup(t *testing.T, from *sqlite.Conn, path string, copying func(*sqlite.Backup)) {
	t.Helper()
	to, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sqlite.NewBackup(to, "", from, "")
	if err != nil {
		t.Fatal(err)
	}
	copying(b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}

// clients write at once.
const clients = 4

// serving is a process that serves a store to clients, each of which updates a
// document of its own.
type serving struct {
	path    string
	process *remote
	clients sync.WaitGroup
	stop    chan struct{}
	pause   func() // ends the clients

	mu           sync.Mutex
	more         *sync.Cond
	acknowledged []*driver.Version
	failed       bool // a write
}

func startServing(t *testing.T) *serving {
	t.Helper()
	s := &serving{path: filepath.Join(t.TempDir(), "asof.db"), stop: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	s.pause = sync.OnceFunc(func() { close(s.stop); s.clients.Wait() })
	fillBackup(t, s.path)
	s.process = startRemote(t, s.path, 0, math.MaxInt, func() {})
	t.Cleanup(func() {
		_ = s.process.process.Process.Kill() // where the test ended early
		s.pause()
	})
	for i := range clients {
		s.clients.Go(func() { s.update(t, fmt.Sprintf("client %d", i)) })
	}
	s.next()
	return s
}

func (s *serving) update(t *testing.T, key string) {
	for n := int64(0); ; n++ {
		select {
		case <-s.stop:
			return
		default:
		}
		w := &driver.Write{ID: fmt.Sprintf("%s %d", key, n), Collection: killCollection, Key: key, Expected: n, Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"n":%d}`, n)}
		v, err := driver.CommitOne(t.Context(), s.process, w)
		s.mu.Lock()
		if s.failed = s.failed || err != nil; err == nil {
			s.acknowledged = append(s.acknowledged, v)
		}
		s.mu.Unlock()
		s.more.Broadcast()
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// count is how many writes were acknowledged.
func (s *serving) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acknowledged)
}

// next waits for a write that is begun after it is called.
func (s *serving) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for before := len(s.acknowledged); len(s.acknowledged) <= before+clients && !s.failed; {
		s.more.Wait()
	}
}

// end kills the process, and returns what was acknowledged.
func (s *serving) end(t *testing.T) []*driver.Version {
	t.Helper()
	s.pause()
	if err := s.process.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.process.end(t)
	return s.acknowledged
}

// fillBackup makes a store of more pages than a backup copies at a time.
func fillBackup(t *testing.T, path string) {
	t.Helper()
	s, err := open(t.Context(), path, Options{Collections: killCollections(), Sync: SyncOff})
	if err != nil {
		t.Fatal(err)
	}
	vs := make([]driver.Version, 300)
	for i := range vs {
		vs[i] = driver.Version{
			Collection: killCollection, Key: fmt.Sprint(i), RecordedAt: benchStart + driver.Instant(i), Op: driver.OpImport, Changed: []string{"n", "text"},
			Data: fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, i, strings.Repeat(fmt.Sprint(i), 1000)),
		}
	}
	if _, err := s.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// inWords is a version without what becomes of it later.
func inWords(v *driver.Version) string {
	return fmt.Sprintf("%s, version %d at %d, %v: %s", v.Key, v.Number, v.RecordedAt, v.Op, v.Data)
}

// versionsOf checks a store, writes to it, and tells what it had, in the order of
// the commits.
func versionsOf(t *testing.T, path string) []string {
	t.Helper()
	s, err := open(t.Context(), path, Options{Collections: killCollections(), Sync: SyncOff})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), func(problem string) { t.Errorf("%s: %s", path, problem) }); err != nil {
		t.Error(err)
	}
	var vs []string
	for v, err := range s.Log(t.Context(), &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		vs = append(vs, inWords(v))
	}
	if _, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: "later", Collection: killCollection, Key: "later", Op: driver.OpCreate, Data: []byte(`{}`)}); err != nil {
		t.Errorf("writing to %s: %v", path, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return vs
}
