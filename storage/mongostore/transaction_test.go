package mongostore

import (
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// What all engines do with commits of several documents.
func TestTransactionConformance(t *testing.T) {
	server := mongotest.NewServer(t)
	drivertest.Run(t, drivertest.Harness{
		UniqueTimes: true,
		Parallel:    true,
		New: func(t *testing.T) drivertest.Opener {
			_, uri, _ := mongotest.NewTransactions(t, server).Behind(t, server)
			return func(t *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				t.Helper()
				s, err := Open(t.Context(), uri, Options{Collections: collections, Clock: clock})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return s
			}
		},
	})
}
