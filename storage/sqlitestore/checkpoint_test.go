package sqlitestore

import (
	"testing"
	"time"
)

// The log of a large load is written over from its beginning once it has become
// long, and what it had is in the file.
func TestLogOfALargeLoadBeginsAnew(t *testing.T) {
	for _, long := range []bool{false, true} {
		s := benchStore(t, Options{Sync: SyncOff, bulkVersions: 100, idleTime: time.Hour})
		vs := benchVersions(20, 300)
		if _, err := s.Load(t.Context(), vs[:200]); err != nil {
			t.Fatal(err)
		}
		before := s.checkpoints.size()
		for from := 200; from < 300; from += 20 {
			if long {
				s.checkpoints.frames.Store(bulkLog)
			}
			if _, err := s.Load(t.Context(), vs[from:from+20]); err != nil {
				t.Fatal(err)
			}
			if !s.bulk.Load() {
				t.Fatal("the load has ended: this test shows nothing")
			}
		}
		if after := s.checkpoints.size(); (after == before) != long {
			t.Errorf("long: %v; the log had %d bytes, and has %d", long, before, after)
		}
		if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
	}
}
