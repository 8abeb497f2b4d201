package storage_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// A version that was changed in the store's file is not returned by any read that is verified.
func TestVerifyReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	things := []driver.Collection{{Name: "things"}}
	reopen := func() driver.Engine {
		t.Helper()
		e, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{Collections: things})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := reopen()
	var vs []driver.Version
	for i := range 4 {
		vs = append(vs, driver.Version{Collection: "things", Key: "a", RecordedAt: driver.Instant(10 + i), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	_, err := e.Load(t.Context(), vs)
	if err := firstOf(err, e.Close()); err != nil {
		t.Fatal(err)
	}
	reads := map[string]func(driver.Engine) error{
		"Get": func(e driver.Engine) error {
			_, err := e.Get(t.Context(), "things", []driver.Ref{{Key: "none", Number: 1}, {Key: "a", Number: 3}}, []string{"n"})
			return err
		},
		"Query": func(e driver.Engine) error {
			_, err := e.Query(t.Context(), &driver.Query{Collection: "things", At: 12})
			return err
		},
		"Log": func(e driver.Engine) error {
			for _, err := range e.Log(t.Context(), &driver.LogQuery{Fields: []string{}}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	all := func(e driver.Engine, wrong bool) {
		t.Helper()
		for name, read := range reads {
			if err := read(e); (err != nil) != wrong || wrong && !strings.Contains(err.Error(), `things "a": version 3 is not as it was sealed`) {
				t.Errorf("%s: %v; wrong: %t", name, err, wrong)
			}
		}
	}
	e = reopen()
	all(storage.VerifyReads(e, 1), false)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	err = sqlitex.ExecuteTransient(c, `UPDATE versions SET data = CAST('{"n":7}' AS BLOB) WHERE id % 67108864 = 3`, nil)
	if err := firstOf(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	e = reopen()
	all(e, false)
	all(storage.VerifyReads(e, 1), true)
	sampled, found := storage.VerifyReads(e, 10), 0
	for range 100 {
		if reads["Get"](sampled) != nil {
			found++
		}
	}
	if found != 10 {
		t.Errorf("%d of 100 reads were verified, want 10", found)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
