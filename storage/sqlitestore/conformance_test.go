package sqlitestore_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/sqlitestore"
)

// TestConformance runs the suite that every engine passes.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		New: func(t *testing.T) drivertest.Opener {
			path := filepath.Join(t.TempDir(), "asof.db")
			return func(t *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				t.Helper()
				s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{
					Collections: collections, Clock: clock, Elapsed: drivertest.Elapsed(clock), Sync: sqlitestore.SyncOff,
				})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return s
			}
		},
	})
}
