package sqlitestore

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// While a transaction is being committed some readers may see it already. Then no
// reader sees less any more, whatever snapshot its connection has.
func TestReadsDuringACommit(t *testing.T) {
	for kept := range 2 {
		var during func()
		s, err := open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), Options{
			Collections: benchDeclared(), Sync: SyncOff, Readers: 2,
			afterCommit: func() error {
				if during != nil {
					during()
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		coll := s.byName[benchCollection]
		commit := func(expected int64) {
			t.Helper()
			w := &driver.Write{
				ID: fmt.Sprint(expected), Collection: benchCollection, Key: "a", Expected: expected, Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"stars":%d}`, expected),
			}
			if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
				t.Fatal(err)
			}
		}
		conns := func() [2]*conn {
			t.Helper()
			var both [2]*conn
			for i := range both {
				if both[i], err = s.readers.get(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return both
		}
		read := func(c *conn) int64 {
			t.Helper()
			v, err := c.get(coll, driver.Ref{Key: "a", At: driver.Forever}, nil)
			if err != nil || v == nil {
				t.Fatal(v, err)
			}
			return v.Number
		}
		commit(0)
		both := conns()
		for i, c := range both {
			if n := read(c); n != 1 {
				t.Fatalf("version %d", n)
			}
			if i != kept {
				c.letGo()
			}
			s.readers.put(c)
		}
		during = func() {
			both := conns()
			if first, second := read(both[0]), read(both[1]); first != second {
				t.Errorf("while the second version is being committed one reader sees version %d and the next one %d", first, second)
			}
			for _, c := range both {
				s.readers.put(c)
			}
		}
		commit(1)
		during = nil
		for _, c := range conns() {
			if n := read(c); n != 2 {
				t.Errorf("then version %d", n)
			}
			s.readers.put(c)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
