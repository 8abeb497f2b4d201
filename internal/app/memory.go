package app

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// leastMemory is the smallest --max-memory: the program itself needs some of it.
const leastMemory = 256 << 20

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

// limitMemory makes the collector keep the program within so many bytes, unless GOMEMLIMIT
// does, and returns what puts that back.
func limitMemory(memory int64) (restore func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(memory / 10 * 9)
	return func() { debug.SetMemoryLimit(before) }
}
