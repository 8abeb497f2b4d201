package app

import (
	"runtime/debug"
	"testing"
)

func TestEaseGC(t *testing.T) {
	percentNow := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	before, limit := percentNow(), debug.SetMemoryLimit(-1)
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	restore := easeGC()
	if p, l := percentNow(), debug.SetMemoryLimit(-1); p != gcPercent || l != memoryLimit {
		t.Errorf("serving: %d %%, %d bytes", p, l)
	}
	restore()
	if p, l := percentNow(), debug.SetMemoryLimit(-1); p != before || l != limit {
		t.Errorf("afterwards: %d %%, %d bytes; want %d and %d", p, l, before, limit)
	}
	t.Setenv("GOGC", "50")
	t.Setenv("GOMEMLIMIT", "100MiB")
	restore = easeGC()
	if p, l := percentNow(), debug.SetMemoryLimit(-1); p != before || l != limit {
		t.Errorf("the environment was overruled: %d %%, %d bytes", p, l)
	}
	restore()
}
