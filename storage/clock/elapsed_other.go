//go:build !linux && !darwin

package clock

import "time"

var begin = time.Now() //nolint:forbidigo // only differences are used

// systemElapsed returns what has passed since the program began, by Go's monotonic clock.
func systemElapsed() time.Duration { return time.Since(begin) } //nolint:forbidigo // see begin
