//go:build !unix

package app

import "time"

// cpuTime is not known: no operation takes too much of it.
func cpuTime() time.Duration { return 0 }
