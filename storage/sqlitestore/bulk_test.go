package sqlitestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// bulkStore returns a store in the middle of a large load, and what was loaded.
func bulkStore(t *testing.T) (*Store, []driver.Version) {
	t.Helper()
	s := benchStore(t, Options{Sync: SyncOff, bulkVersions: 100})
	vs := benchVersions(20, 300)
	if _, err := s.Load(t.Context(), vs[:200]); err != nil {
		t.Fatal(err)
	}
	if !s.bulk.Load() {
		t.Fatal("a large load into an empty store kept its indexes")
	}
	if _, err := s.Load(t.Context(), vs[200:]); err != nil {
		t.Fatal(err)
	}
	if !s.bulk.Load() {
		t.Fatal("the second part of a large load made the indexes")
	}
	return s, vs
}

// Whatever needs the indexes of a large load has them made.
func TestIndexesOfALargeLoadAreMadeWhenNeeded(t *testing.T) {
	first := func(vs []driver.Version) *driver.Version { return &vs[0] }
	for name, use := range map[string]func(t *testing.T, s *Store, vs []driver.Version){
		"a read of the past": func(t *testing.T, s *Store, vs []driver.Version) {
			v := first(vs)
			got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: v.Key, At: v.RecordedAt}}, nil)
			if err != nil || got[0] == nil || got[0].RecordedAt != v.RecordedAt {
				t.Errorf("got %v, %v", got, err)
			}
		},
		"the log": func(t *testing.T, s *Store, vs []driver.Version) {
			if n := count(t, s, &driver.LogQuery{}); n != len(vs) {
				t.Errorf("got %d versions, want %d", n, len(vs))
			}
		},
		"the log of a document": func(t *testing.T, s *Store, vs []driver.Version) {
			q := &driver.LogQuery{Collections: []string{benchCollection}, Keys: []string{first(vs).Key}, From: first(vs).RecordedAt}
			if n := count(t, s, q); n < 2 {
				t.Errorf("got %d versions", n)
			}
		},
		"a commit": func(t *testing.T, s *Store, _ []driver.Version) {
			w := &driver.Write{ID: "1", Collection: benchCollection, Key: "new", Op: driver.OpCreate, Data: []byte(`{}`)}
			if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
				t.Error(err)
			}
		},
		"a load of what is there": func(t *testing.T, s *Store, vs []driver.Version) {
			s.writer.cache.clear() // the writer is idle
			got, err := s.Load(t.Context(), vs)
			if err != nil || got.Added != 0 || got.Skipped != int64(len(vs)) {
				t.Errorf("got %+v, %v", got, err)
			}
		},
		"a check": func(t *testing.T, s *Store, _ []driver.Version) {
			if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, vs := bulkStore(t)
			use(t, s, vs)
			if s.bulk.Load() {
				t.Error("the indexes are still missing")
			}
			if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
				t.Error(err)
			}
		})
	}
}

func count(t *testing.T, s *Store, q *driver.LogQuery) (n int) {
	t.Helper()
	for _, err := range s.Log(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A load that fails leaves an empty store as it was.
func TestLargeLoadThatFails(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, bulkVersions: 100})
	vs := benchVersions(20, 300)
	bad := append(append([]driver.Version(nil), vs...), vs[0])
	bad[len(bad)-1].Data = []byte(`{"other":1}`)
	if _, err := s.Load(t.Context(), bad); driver.CodeOf(err) != driver.CodeInvalid {
		t.Fatalf("got %v", err)
	}
	if n := count(t, s, &driver.LogQuery{}); n != 0 {
		t.Errorf("%d versions are left", n)
	}
	if got, err := s.Load(t.Context(), vs); err != nil || got.Added != int64(len(vs)) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A program that was killed in the middle of a large load leaves a file without
// the indexes; they are made when they are needed.
func TestLargeLoadThatWasKilled(t *testing.T) {
	s, vs := bulkStore(t)
	path := filepath.Join(t.TempDir(), "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(s.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again, err := open(context.Background(), path, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}()
	if !again.bulk.Load() {
		t.Error("the copy has indexes: this test shows nothing")
	}
	for i := range vs {
		ref := driver.Ref{Key: vs[i].Key, At: vs[i].RecordedAt}
		got, err := again.Get(t.Context(), benchCollection, []driver.Ref{ref}, nil)
		if err != nil || got[0] == nil {
			t.Fatalf("got %v, %v", got, err)
		}
		if diff := cmp.Diff(string(vs[i].Data), string(got[0].Data)); diff != "" {
			t.Fatal(diff)
		}
	}
}

// A read that began while there were indexes, and continues in a large load, finds the same without them.
func TestReadBesideALargeLoad(t *testing.T) {
	s, vs := bulkStore(t)
	c, err := s.readers.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.readers.release(c)
	for i := range vs {
		got, err := c.get(s.byName[benchCollection], driver.Ref{Key: vs[i].Key, At: vs[i].RecordedAt}, nil)
		if err != nil || got == nil || got.RecordedAt != vs[i].RecordedAt {
			t.Fatalf("version %d: %v, %v", i, got, err)
		}
	}
	if !s.bulk.Load() {
		t.Error("there are indexes: this test shows nothing")
	}
}

// The versions of an imported group are found by an index, which a server makes that has nothing else to do where a
// large load, or an earlier version, left the file without it; other groups are found as they were before.
func TestGroupsAreFoundByAnIndex(t *testing.T) {
	const timed = "01890a5d-ac96-774b-bcce-b302099a8057"
	groups := []string{"", "release", "3f786850e387550fdab836ed7e6dc881de23001b", "ünïcödé-1234-7", timed, "12345678-1234-7", "12345678-12347"}
	path := filepath.Join(t.TempDir(), "asof.db")
	reopen := func(idle time.Duration) *Store {
		t.Helper()
		s, err := open(t.Context(), path, Options{Collections: []driver.Collection{{Name: "a"}, {Name: "b"}}, Sync: SyncOff, bulkVersions: 100, idleTime: idle})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := reopen(time.Hour)
	var vs []driver.Version
	for i := range 300 {
		vs = append(vs, driver.Version{Collection: "ab"[i%2 : i%2+1], Key: fmt.Sprint(i % 7), RecordedAt: driver.Instant(i + 1), Op: driver.OpImport, Group: groups[i%len(groups)], Data: []byte(`{}`)})
	}
	if _, err := s.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	look := func(indexed bool) {
		t.Helper()
		for i, group := range append(groups, "none") {
			for _, backward := range []bool{false, true} {
				q := &driver.LogQuery{Backward: backward, From: 20, To: 250, Hints: driver.Hints{Groups: []string{group}}}
				var got, want []driver.Instant
				for v, err := range s.Log(t.Context(), q) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, v.RecordedAt)
				}
				for at := q.From; at < q.To; at++ {
					if int(at-1)%len(groups) == i {
						want = append(want, at)
					}
				}
				if backward {
					slices.Reverse(want)
				}
				if !slices.Equal(got, want) {
					t.Errorf("versions of the group %q, backward %v: at %v, want %v", group, backward, got, want)
				}
				plan := ""
				if err := s.read(t.Context(), func(c *conn) error {
					st := newStream(s, q, s.byName["a"])
					p, err := c.Prepare("EXPLAIN QUERY PLAN " + st.query(st.inIndex(), 0))
					if err != nil {
						return err
					}
					return c.rows(p, func(p *sqlite.Stmt) error {
						plan += p.ColumnText(3) + "\n"
						return nil
					})
				}); err != nil {
					t.Fatal(err)
				}
				if by, want := strings.Contains(plan, "versions_group"), slices.Contains([]string{"release", groups[2], "12345678-12347", "none"}, group); by != (want && indexed) || strings.Contains(plan, "TEMP B-TREE") {
					t.Errorf("the group %q is looked for so:\n%s", group, plan)
				}
			}
		}
	}
	look(false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(time.Nanosecond)
	for !s.grouped.Load() {
		time.Sleep(time.Millisecond)
	}
	look(true)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
