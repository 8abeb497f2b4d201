package mongostore

import (
	"fmt"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A long history is read with few commands: with more runs each time.
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
		{driver.LogQuery{Backward: true}, withData},
		{driver.LogQuery{}, withData},
		{driver.LogQuery{Fields: []string{}}, without},
	} {
		t.Run(fmt.Sprintf("backward %t, no data %t", c.query.Backward, noData(&c.query)), func(t *testing.T) {
			c.query.Collections, c.query.Keys = []string{"tools"}, []string{"go"}
			sent.take()
			n := int64(0)
			for v, err := range s.Log(t.Context(), &c.query) {
				if err != nil {
					t.Fatal(err)
				}
				n++
				want := n
				if c.query.Backward {
					want = versions + 1 - n
				}
				if v.Number != want {
					t.Fatalf("version %d comes in the place of %d", v.Number, want)
				}
			}
			commands := sent.take()
			if n != versions || len(commands) > c.most {
				t.Errorf("%d versions, with %d commands, want at most %d", n, len(commands), c.most)
			}
		})
	}
}
