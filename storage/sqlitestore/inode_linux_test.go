package sqlitestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A file that is in use is refused by all of its names, and nothing is made beside
// the other one that would be taken for its log.
func TestTwoServersOnLinkedFiles(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "asof.db"), filepath.Join(t.TempDir(), "asof.db")
	s, err := Open(t.Context(), one, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // again, where the test goes on
	if err := os.Link(one, other); err != nil {
		t.Fatal(err)
	}
	write := &driver.Write{ID: "w", Collection: benchCollection, Key: "k", Op: driver.OpCreate, Data: []byte(`{}`)}
	for range 2 {
		second, err := Open(t.Context(), other, Options{Collections: benchDeclared()})
		if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "is using it by another name") {
			t.Fatalf("%v, %v", second, err)
		}
	}
	if _, err := os.Stat(other + "-wal"); !os.IsNotExist(err) {
		t.Errorf("a log was made: %v", err)
	}
	if _, err := s.Commit(t.Context(), write); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(t.Context(), other, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got, err := second.Get(t.Context(), benchCollection, []driver.Ref{{Key: "k", At: driver.Forever}}, nil); err != nil || got[0] == nil {
		t.Errorf("%v, %v", got, err)
	}
}
