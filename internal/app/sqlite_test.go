package app

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
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
		m := &Main{Types: model.Types, Schema: resolvers.NewSchema, Stdout: io.Discard, Stderr: io.Discard}
		if done, err := m.ParseFlags(test.args); done || err != nil {
			t.Fatal(done, err)
		}
		if o := m.sqliteOptions(); o.Sync != test.sync || o.VersionCache != test.cache {
			t.Errorf("%q: sync %v and a cache of %d bytes, want %v and %d", test.args, o.Sync, o.VersionCache, test.sync, test.cache)
		}
	}
}

// What a store holds, and an export of it, is nobody's business but the owner's; a
// file that is there keeps its mode.
func TestFilesAreTheirOwners(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes of files here")
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "asof.db")
	wantMode := func(mode os.FileMode, names ...string) {
		t.Helper()
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != mode {
				t.Errorf("%s: mode %v, want %v", filepath.Base(name), info.Mode(), mode)
			}
		}
	}
	p := serve(t, "--demo", "--store=sqlite:"+store)
	wantMode(0o600, store, store+"-wal", store+"-shm", store+".lock")
	p.stop()
	out := filepath.Join(dir, "all.ndjson")
	if status, _, stderr := run(t, "", "export", "--store=sqlite:"+store, out); status != 0 {
		t.Fatal(stderr)
	}
	wantMode(0o600, out)
	for _, name := range []string{store, store + ".lock", out} {
		if err := os.Chmod(name, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	p = serve(t, "--store=sqlite:"+store)
	wantMode(0o640, store, store+"-wal", store+"-shm", store+".lock")
	p.stop()
	if status, _, stderr := run(t, "", "export", "--store=sqlite:"+store, out); status != 0 {
		t.Fatal(stderr)
	}
	wantMode(0o640, out)
}
