package sqlitestore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
)

// With epochs that are cut after every few changes, the same suite goes
// through many of them; every first load is a large one; and queries take a new
// snapshot at each row.
func TestEngineWithManyEpochs(t *testing.T) {
	drivertest.Run(t, harness(Options{Sync: SyncOff, readers: 3, VersionCache: 256 << 10, epochSlack: 2, copyStep: 1, bulkVersions: 1, smallDocument: 1, sortBytes: 2, idleTime: time.Nanosecond, softLog: 50}))
}

func harness(opts Options) drivertest.Harness {
	return drivertest.Harness{
		New: func(t *testing.T) drivertest.Opener {
			path := filepath.Join(t.TempDir(), "asof.db")
			return func(t *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				t.Helper()
				opts := opts
				opts.Collections, opts.Clock, opts.Elapsed = collections, clock, drivertest.Elapsed(clock)
				s, err := open(t.Context(), path, opts)
				if err != nil {
					t.Fatal(err)
				}
				return s.guarded()
			}
		},
	}
}
