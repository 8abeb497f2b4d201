package storage

import (
	"runtime"
	"testing"
	"weak"
)

// What a feed has dropped is not in memory any more, however many small rounds there were before.
func TestDroppedRoundsAreForgotten(t *testing.T) {
	var f feed
	var all []weak.Pointer[watchRound]
	for i := range 400 {
		r := &watchRound{bytes: 100}
		if i >= 300 {
			r.bytes = 1 << 20
		}
		f.rounds, all = append(f.rounds, r), append(all, weak.Make(r))
		f.keep(r.bytes)
	}
	runtime.GC()
	bytes := 0
	for _, r := range all {
		if r := r.Value(); r != nil {
			bytes += r.bytes
		}
	}
	if bytes != f.held || bytes > keptRoundBytes || len(f.rounds) != keptRoundBytes>>20 {
		t.Errorf("%d bytes are in memory, %d in %d rounds are kept", bytes, f.held, len(f.rounds))
	}
	runtime.KeepAlive(&f)
}
