package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// Collections that the schema does not declare are logged once, with their numbers.
func TestUndeclaredCollections(t *testing.T) {
	for _, c := range []struct {
		name string
		keys map[string]string // collection by key
		want []string
	}{
		{"none", map[string]string{"a": "tags"}, nil},
		{"one", map[string]string{"a": "tags", "b": "things", "c": "things"}, []string{"collection=things documents=2 versions=2"}},
		{"two", map[string]string{"a": "shelves", "b": "things"}, []string{"collection=shelves documents=1 versions=1", "collection=things documents=1 versions=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "asof.db")
			engine, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{
				Collections: []driver.Collection{{Name: "shelves"}, {Name: "things"}, {Name: "tags"}}, Sync: sqlitestore.SyncOff,
			})
			if err != nil {
				t.Fatal(err)
			}
			for key, collection := range c.keys {
				if _, err := driver.CommitOne(t.Context(), engine, &driver.Write{ID: key, Collection: collection, Key: key, Op: driver.OpCreate, Data: []byte("{}")}); err != nil {
					t.Error(err)
				}
			}
			if err := engine.Close(); err != nil {
				t.Fatal(err)
			}
			p := serve(t, "--store=sqlite:"+path)
			p.do(t, "GET", "/metrics", "")
			log := p.stderr.String()
			if got := strings.Count(log, "the schema does not declare"); got != len(c.want) {
				t.Errorf("%d warnings, want %d:\n%s", got, len(c.want), log)
			}
			for _, want := range c.want {
				if !strings.Contains(log, want) {
					t.Errorf("the log lacks %q:\n%s", want, log)
				}
			}
		})
	}
}
