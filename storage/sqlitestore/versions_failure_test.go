package sqlitestore

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// A version is not kept where reading it failed half way: when it was superseded
// is not known, and it would be given to those who ask for the current one.
func TestVersionReadInPartIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	opts := Options{Collections: benchDeclared(), Sync: SyncOff, Readers: 1}
	s, err := open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(3) {
		w := &driver.Write{
			ID: fmt.Sprint(n), Collection: benchCollection, Key: "a", Expected: n, Op: driver.OpUpdate,
			Data: fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat(fmt.Sprintf("state %d.", n+1), 400)),
		}
		if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Each of them has a page of its own. That of the second is damaged.
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	at := bytes.Index(file, []byte("state 2."))
	if at < 0 || at/page == bytes.Index(file, []byte("state 1."))/page {
		t.Fatalf("the second version is at %d", at)
	}
	file[at/page*page] = 0xff
	writeFile(t, path, string(file))
	if s, err = open(t.Context(), path, opts); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Log(err)
		}
	}()
	if got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", Number: 1}}, nil); driver.CodeOf(err) != driver.CodeInternal {
		t.Fatalf("got %v, %v, want the damaged page behind version 1", got, err)
	}
	got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", At: driver.Forever}}, nil)
	if err != nil || got[0].Number != 3 {
		t.Errorf("got %+v, %v, want version 3", got, err)
	}
}

// Where a transaction cannot be committed, what was kept is read again, and is
// kept again from then on.
func TestVersionsAreKeptAfterAFailedCommit(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, Readers: 1})
	commit := func(id string, expected int64) error {
		w := &driver.Write{
			ID: id, Collection: benchCollection, Key: "a", Expected: expected, Op: driver.OpUpdate, Data: []byte(`{}`),
		}
		_, err := driver.CommitOne(t.Context(), s, w)
		return err
	}
	read := func(want int64, kept int) {
		t.Helper()
		got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", At: driver.Forever}}, nil)
		if err != nil || got[0].Number != want || keptCount(s, "a") != kept {
			t.Errorf("got %+v, %v, want version %d; %d versions are kept, want %d", got, err, want, keptCount(s, "a"), kept)
		}
	}
	if err := commit("first", 0); err != nil {
		t.Fatal(err)
	}
	read(1, 1)
	allow := func(deny string) {
		t.Helper()
		if err := s.writer.SetAuthorizer(sqlite.AuthorizeFunc(func(a sqlite.Action) sqlite.AuthResult {
			if a.Type() == sqlite.OpTransaction && a.Operation() == deny {
				return sqlite.AuthResultDeny
			}
			return sqlite.AuthResultOK
		})); err != nil {
			t.Fatal(err)
		}
	}
	allow("COMMIT")
	if err := commit("second", 1); err == nil {
		t.Fatal("a transaction was committed that was not allowed to")
	}
	if n := keptCount(s, "a"); n != 0 {
		t.Errorf("%d versions are kept after a commit of which nothing is known", n)
	}
	read(1, 1)
	allow("")
	if err := commit("second", 1); err != nil {
		t.Fatal(err)
	}
	read(2, 1)
}
