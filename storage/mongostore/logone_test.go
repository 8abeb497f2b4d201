package mongostore

import (
	"fmt"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A long history is read with few commands: with more runs each time, and nothing is
// read twice for the versions before others.
func TestLongHistoryTakesFewCommands(t *testing.T) {
	const versions, run = 2000, 4 // some 500 runs
	var sent recorder
	s := openRecorded(t, Bounds{Versions: run}, &sent)
	if _, err := loadAgain(t.Context(), s, imported("go", 0, versions)); err != nil {
		t.Fatal(err)
	}
	const (
		withData = 2 + 4 + 6 // the document and 4 runs, then 8, 16, 32, 64, and 64 each time
		without  = 2 + 7     // the same until 512
	)
	for _, c := range []struct {
		query driver.LogQuery
		most  int
	}{
		{driver.LogQuery{Backward: true, Previous: true}, withData},
		{driver.LogQuery{Backward: true}, withData},
		{driver.LogQuery{Previous: true}, withData},
		{driver.LogQuery{NoData: true}, without},
	} {
		t.Run(fmt.Sprintf("backward %t, previous %t, no data %t", c.query.Backward, c.query.Previous, c.query.NoData), func(t *testing.T) {
			c.query.Collections, c.query.Keys = []string{"tools"}, []string{"go"}
			sent.take()
			n := int64(0)
			for e, err := range s.Log(t.Context(), &c.query) {
				if err != nil {
					t.Fatal(err)
				}
				n++
				want := n
				if c.query.Backward {
					want = versions + 1 - n
				}
				if e.Version.Number != want || c.query.Previous && want > 1 && (e.Previous == nil || e.Previous.Number != want-1) {
					t.Fatalf("version %d comes in the place of %d, with %v", e.Version.Number, want, e.Previous)
				}
			}
			commands := sent.take()
			if n != versions || len(commands) > c.most {
				t.Errorf("%d versions, with %d commands, want at most %d", n, len(commands), c.most)
			}
		})
	}
}
