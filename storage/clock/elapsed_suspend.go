//go:build linux || darwin

package clock

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// systemElapsed returns what has passed since some moment, suspension included.
func systemElapsed() time.Duration {
	sinceBoot := unix.CLOCK_MONOTONIC // of macOS: it goes on while the machine is suspended
	if runtime.GOOS == "linux" {
		sinceBoot = 7 // CLOCK_BOOTTIME, which does so on Linux, and has a name there only
	}
	var t unix.Timespec
	if err := unix.ClockGettime(int32(sinceBoot), &t); err != nil {
		panic(err) // the system has this clock
	}
	return time.Duration(t.Nano())
}
