package record

import (
	"fmt"
	"time"

	"github.com/asof/asof/storage/driver"
)

// Keep says which versions of a type's documents are kept: a version stays while either
// wants it, and in any case as long as it is the document's last one, and for Grace after
// that. The zero Keep keeps all.
//
// What is pruned keeps its number, its time and its hash, about 100 bytes: so numbers do
// not shift, and whoever reads at it is told. Lists as of an instant are exact from the
// type's horizon on, which is raised before anything is pruned, and looked at after a list
// was read; so neither waits for the other.
type Keep struct {
	Versions int    // the last ones of each document; 0: not by number
	For      Period // those that were current within it; zero: not by time
}

// check refuses a Keep that keeps nothing, or makes no sense.
func (k *Keep) check() error {
	if k == nil {
		return nil
	}
	p := k.For
	if k.Versions < 0 || min(p.Years, p.Months, p.Days, int(p.Time)) < 0 || *k == (Keep{}) {
		return fmt.Errorf("keeps %d versions and those of %+v: at least one version, or some time, must be kept", k.Versions, p)
	}
	return nil
}

// Lets reports whether nothing keeps a version, of a document with a last one.
func (k *Keep) Lets(v, last *driver.Version, now driver.Instant) bool {
	return v.Number < last.Number && v.SupersededAt <= GraceBefore(now) &&
		(k.Versions == 0 || v.Number <= last.Number-int64(k.Versions)) &&
		(k.For == Period{} || v.SupersededAt <= k.For.Before(now))
}

// Period is a time in calendar units, in UTC.
type Period struct {
	Years, Months, Days int
	Time                time.Duration
}

// Before is the instant that lies a period before another one; 0 where that is before 1970.
// A month that lacks the day counts from its last one, so that later instants have later ones.
func (p Period) Before(at driver.Instant) driver.Instant {
	now := at.Time()
	t := now.AddDate(-p.Years, -p.Months, 0)
	if t.Day() != now.Day() {
		t = t.AddDate(0, 0, -t.Day())
	}
	t = t.AddDate(0, 0, -p.Days).Add(-p.Time)
	if t.Year() < 1970 { // an Instant may be too small for it
		return 0
	}
	return driver.InstantOf(t)
}

// Grace is how long a version stays after it was superseded, whatever Keep says: no operation
// takes as long, so that nothing is pruned which one has seen.
const Grace = time.Hour

// GraceBefore is the instant that lies Grace before another one.
func GraceBefore(at driver.Instant) driver.Instant { return at - driver.Instant(Grace.Microseconds()) }
