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
		New: func(*testing.T) Opener {
			var m *model
			return func(_ *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				if m == nil {
					m = newModel(clock, collections)
				} else {
					m.reopen(clock, collections)
				}
				return m.guard(m)
			}
		},
	})
}

// TestHintsMayBeIgnored runs the tests of logs against an engine that ignores the
// hints, as engines may.
func TestHintsMayBeIgnored(t *testing.T) {
	s := &suite{scale: 1, seed: 1, Harness: Harness{New: func(*testing.T) Opener {
		return func(_ *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
			m := newModel(clock, collections)
			return m.guard(&mutant{model: m, log: func(_ *model, q *driver.LogQuery) (*driver.LogQuery, func([]*driver.Version) []*driver.Version) {
				asked := *q
				asked.Hints = driver.Hints{}
				return &asked, unchanged
			}})
		}
	}}}
	for _, test := range s.logTests() {
		t.Run(test.name, test.run)
	}
}
