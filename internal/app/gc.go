package app

import (
	"os"
	"runtime/debug"
)

// What the collector is asked for while serving. Live memory is a few megabytes,
// most of it caches, so that by default it would run some hundred times a second
// under load; a heap two and a half times the live one is still small. The limit
// makes it thrifty again where requests hold much.
const (
	gcPercent   = 150
	memoryLimit = 1 << 30 // bytes, soft
)

// easeGC sets the collector for serving, unless GOGC or GOMEMLIMIT do, and
// returns what puts it back.
func easeGC() (restore func()) {
	percent, limit := -2, int64(-1)
	if os.Getenv("GOGC") == "" {
		percent = debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		limit = debug.SetMemoryLimit(memoryLimit)
	}
	return func() {
		if percent != -2 {
			debug.SetGCPercent(percent)
		}
		if limit >= 0 {
			debug.SetMemoryLimit(limit)
		}
	}
}
