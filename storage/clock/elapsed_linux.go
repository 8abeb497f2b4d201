package clock

import "golang.org/x/sys/unix"

// sinceBoot goes on while the machine is suspended, unlike Go's monotonic clock.
const sinceBoot = unix.CLOCK_BOOTTIME
