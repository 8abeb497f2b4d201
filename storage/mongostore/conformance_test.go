package mongostore_test

import (
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/mongostore"
)

// TestConformance runs the suite that every engine passes.
func TestConformance(t *testing.T) {
	server := newServer(t)
	drivertest.Run(t, drivertest.Harness{
		Parallel: true,
		New: func(t *testing.T) drivertest.Opener {
			uri := server.database(t)
			return func(t *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				t.Helper()
				s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: collections, Clock: clock})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return s
			}
		},
	})
}
