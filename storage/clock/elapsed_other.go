//go:build !linux && !darwin

package clock

import "time"

// systemElapsed returns the system's measure of what passes: Go's monotonic clock.
func systemElapsed() func(time.Duration) time.Duration {
	begin := time.Now()                                                   //nolint:forbidigo // only differences are used
	return func(time.Duration) time.Duration { return time.Since(begin) } //nolint:forbidigo // see begin
}
