package app

import (
	"bytes"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	restore := limitMemory(1 << 30)
	if got := debug.SetMemoryLimit(-1); got >= 1<<30 || got < 900<<20 {
		t.Errorf("the collector's limit is %d", got)
	}
	large := bytes.Repeat([]byte("x"), 64<<20)
	runtime.GC()
	heap := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	if goal, live := heap[0].Value.Uint64()-ballast, heap[1].Value.Uint64()-ballast; goal > 2*live {
		t.Errorf("%d bytes live, and the collector begins at %d", live, goal)
	}
	runtime.KeepAlive(large)
	restore()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the collector's limit is %d afterwards, was %d", got, before)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	limitMemory(1 << 30)()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the collector's limit is %d, where the environment has one", got)
	}
	if got := (limitFlags{}).memory(); got < leastMemory || got == math.MaxInt64 {
		t.Errorf("%d bytes by default", got)
	}
	if got := (limitFlags{Memory: 300 << 20}).memory(); got != 300<<20 {
		t.Errorf("%d bytes of 300 MB", got)
	}
}

// Slow operations of an engine that waits for others are as many as there is memory for.
func TestSlowOperationsFitIntoMemory(t *testing.T) {
	for memory, want := range map[int64]int{16 << 20: 1, 128 << 20: 2, 256 << 20: 5, 4 << 30: 16} {
		if got := distantSlow(64, memory); got != want {
			t.Errorf("%d with %d MB, want %d", got, memory>>20, want)
		}
	}
}
