//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemElapsed returns the system's measure of what passes. Go's monotonic clock is enough
// as long as the machine is not suspended, and needs no system call.
func systemElapsed() func(enough time.Duration) time.Duration {
	all := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(sinceBoot, &t); err != nil {
			panic(err) // the system has this clock
		}
		return time.Duration(t.Nano())
	}
	passed, begin := all(), time.Now() //nolint:forbidigo // only differences are used
	return func(enough time.Duration) time.Duration {
		if least := passed + time.Since(begin); least >= enough { //nolint:forbidigo // see begin
			return least
		}
		return all()
	}
}
