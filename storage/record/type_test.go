package record

import (
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// A month before the last days of a month is the last day of a shorter one, never later.
func TestPeriodBefore(t *testing.T) {
	at := func(month time.Month, day int) driver.Instant {
		return driver.InstantOf(time.Date(2026, month, day, 12, 0, 0, 0, time.UTC))
	}
	for _, c := range []struct{ now, want driver.Instant }{
		{at(time.March, 28), at(time.February, 28)},
		{at(time.March, 31), at(time.February, 28)},
		{at(time.April, 1), at(time.March, 1)},
		{at(time.July, 31), at(time.June, 30)},
	} {
		if got := (Period{Months: 1}).Before(c.now); got != c.want {
			t.Errorf("a month before %s: %s, want %s", c.now, got, c.want)
		}
	}
	if got, want := (Period{Months: 1, Days: 1}).Before(at(time.March, 31)), at(time.February, 27); got != want {
		t.Errorf("a month and a day: %s, want %s", got, want)
	}
}
