package drivertest

import (
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// TestModel runs the suite against the oracle itself: what the named tests
// expect is what the model does.
func TestModel(t *testing.T) {
	Run(t, Harness{
		UniqueTimes: true,
		New: func(*testing.T) Opener {
			var m *model
			return func(_ *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				if m == nil {
					m = newModel(clock, collections)
				} else {
					m.reopen(clock, collections)
				}
				return m
			}
		},
	})
}
