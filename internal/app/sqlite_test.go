package app

import (
	"io"
	"testing"

	"github.com/asof/asof/storage/sqlitestore"
)

// The flags reach the embedded store.
func TestStoreOptions(t *testing.T) {
	for _, test := range []struct {
		args  []string
		cache int
		sync  sqlitestore.Sync
	}{
		{[]string{"serve"}, 8 << 20, sqlitestore.SyncFull},
		{[]string{"serve", "--version-cache=300MB", "--sync=off"}, 300 << 20, sqlitestore.SyncOff},
		{[]string{"import", "-"}, 8 << 20, sqlitestore.SyncNormal},
		{[]string{"import", "-", "--sync=off"}, 8 << 20, sqlitestore.SyncOff},
	} {
		m := &Main{Stdout: io.Discard, Stderr: io.Discard}
		if done, err := m.ParseFlags(test.args); done || err != nil {
			t.Fatal(done, err)
		}
		if o := m.sqliteOptions(); o.Sync != test.sync || o.VersionCache != test.cache {
			t.Errorf("%q: sync %v and a cache of %d bytes, want %v and %d", test.args, o.Sync, o.VersionCache, test.sync, test.cache)
		}
	}
}
