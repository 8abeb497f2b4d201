package sqlitestore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
)

func TestEngine(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		UniqueTimes: true,
		New: func(t *testing.T) drivertest.Opener {
			path := filepath.Join(t.TempDir(), "asof.db")
			return func(t *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				t.Helper()
				s, err := Open(t.Context(), path, Options{Collections: collections, Clock: clock, Sync: SyncOff, Readers: 3})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
		},
	})
}
