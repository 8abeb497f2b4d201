//go:build linux || darwin

package clock

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// systemElapsed returns the system's measure of what passes. Go's monotonic clock is enough
// as long as the machine is not suspended, and needs no system call.
func systemElapsed() func(enough time.Duration) time.Duration {
	sinceBoot := unix.CLOCK_MONOTONIC // of macOS: it goes on while the machine is suspended
	if runtime.GOOS == "linux" {
		sinceBoot = 7 // CLOCK_BOOTTIME, which does so on Linux, and has a name there only
	}
	all := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(int32(sinceBoot), &t); err != nil {
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
