//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemElapsed returns the system's measure of what passes.
func systemElapsed() func() time.Duration {
	return func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(sinceBoot, &t); err != nil {
			panic(err) // the system has this clock
		}
		return time.Duration(t.Nano())
	}
}
