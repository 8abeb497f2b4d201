package sqlitestore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A log tells what it looks through for nothing, and ends when it is told to.
func TestExamined(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff})
	const versions = 3_000
	vs := benchVersions(10, versions)
	for i := range vs {
		vs[i].Author = "everybody"
	}
	vs[versions/2].Author = "ann"
	benchLoad(t, s, vs)
	key, ofKey := vs[versions/2].Key, 0
	for _, v := range vs {
		if v.Key == key {
			ofKey++
		}
	}
	for name, test := range map[string]struct {
		q     driver.LogQuery
		found int
		least int // versions that are looked at beside
	}{
		"of one author":         {driver.LogQuery{Authors: []string{"ann"}}, 1, versions - 1},
		"backward":              {driver.LogQuery{Authors: []string{"ann"}, Backward: true}, 1, versions - 1},
		"of nobody":             {driver.LogQuery{Authors: []string{"nobody"}, Limit: 20}, 0, versions},
		"of no such operation":  {driver.LogQuery{Ops: []driver.Op{driver.OpRestore}}, 0, versions},
		"all":                   {driver.LogQuery{}, versions, 0},
		"of one document":       {driver.LogQuery{Keys: []string{key}, Authors: []string{"ann"}}, 1, ofKey - 1},
		"histories of nobody":   {driver.LogQuery{Histories: []driver.History{{Key: key}}, Authors: []string{"nobody"}, Limit: 2}, 0, ofKey},
		"histories of somebody": {driver.LogQuery{Histories: []driver.History{{Key: key}}, Authors: []string{"ann"}}, 1, ofKey - 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := test.q
			q.Collections = []string{benchCollection}
			looked, size, found := 0, 0, 0
			q.Examined = func(n, bytes int) error {
				looked, size = looked+n, size+bytes
				return nil
			}
			for _, err := range s.Log(t.Context(), &q) {
				if err != nil {
					t.Fatal(err)
				}
				found++
			}
			if found != test.found || looked != test.least || looked > 0 && size < looked*rowBytes {
				t.Errorf("found %d, and looked at %d with %d bytes beside; want %d and %d", found, looked, size, test.found, test.least)
			}
			if test.least == 0 {
				return
			}
			enough := errors.New("enough")
			calls := 0
			q.Examined = func(int, int) error {
				calls++
				return fmt.Errorf("that is %w", enough)
			}
			var last error
			for _, err := range s.Log(t.Context(), &q) {
				last = err
			}
			if !errors.Is(last, enough) || calls != 1 {
				t.Errorf("%v after %d calls", last, calls)
			}
		})
	}
}
