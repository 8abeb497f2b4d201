package app

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// leastMemory is the smallest --max-memory: the program itself needs some of it.
	leastMemory = 256 << 20
	// gcPercent is what the collector is asked for while serving. Live memory is a few
	// megabytes, most of it caches, so that by default it would run some hundred times a
	// second under load; a heap two and a half times the live one is still small.
	gcPercent = 150
)

// memory is what --max-memory says, or a quarter of what the machine has, or the
// container that the program runs in.
func (f limitFlags) memory() int64 {
	if f.Memory > 0 {
		return int64(f.Memory)
	}
	there := uint64(math.MaxUint64)
	for _, ask := range [...]func() (uint64, error){memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := ask(); err == nil && n > 0 { // where there is no limit, or none is known, the other counts
			there = min(there, n)
		}
	}
	if there == math.MaxUint64 {
		return 4 * leastMemory
	}
	return max(int64(min(there/4, math.MaxInt64)), leastMemory)
}

// requestMemory is how much of the memory requests may hold, as it is counted. The rest is
// for the program, its caches, and what the collector has not found yet.
func requestMemory(memory int64) int64 { return memory / 2 }

// limitMemory sets the collector for serving within so many bytes, unless GOGC or
// GOMEMLIMIT do, and returns what puts it back.
func limitMemory(memory int64) (restore func()) {
	percent, limit := -2, int64(-1)
	if os.Getenv("GOGC") == "" {
		percent = debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		limit = debug.SetMemoryLimit(memory / 10 * 9)
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
