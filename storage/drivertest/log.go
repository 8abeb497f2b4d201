package drivertest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// logged reports whether a version is one that the query asks for, whatever its
// hints say.
func logged(q *driver.LogQuery, v *driver.Version) bool {
	oneOf := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	behind := true
	if q.After != nil {
		c := comparePositions(positionOf(v), *q.After)
		behind = c > 0 && !q.Backward || c < 0 && q.Backward
	}
	return oneOf(q.Collections, v.Collection) && oneOf(q.Keys, v.Key) && behind &&
		q.From <= v.RecordedAt && (q.To == 0 || v.RecordedAt < q.To) &&
		q.FromNumber <= v.Number && (q.ToNumber == 0 || v.Number < q.ToNumber)
}

// hinted reports whether a version meets the hints.
func hinted(h *driver.Hints, v *driver.Version) bool {
	oneOf := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	changed := len(h.Changed) == 0
	for _, name := range h.Changed {
		changed = changed || slices.Contains(v.Changed, name)
	}
	return oneOf(h.Authors, v.Author) && oneOf(h.Groups, v.Group) && (len(h.Ops) == 0 || slices.Contains(h.Ops, v.Op)) && changed
}

func positionOf(v *driver.Version) driver.LogPosition {
	return driver.LogPosition{At: v.RecordedAt, Collection: v.Collection, Key: v.Key, Number: v.Number}
}

// comparePositions orders by commit.
func comparePositions(a, b driver.LogPosition) int {
	return cmp.Or(
		cmp.Compare(a.At, b.At),
		cmp.Compare(a.Collection, b.Collection),
		cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Number, b.Number),
	)
}

// checkHistory says what is wrong with all versions of one document, oldest first.
func checkHistory(versions []*driver.Version) []string {
	var problems []string
	for i, v := range versions {
		name := fmt.Sprintf("%s %q version %d", v.Collection, v.Key, v.Number)
		if v.Number != int64(i)+1 {
			problems = append(problems, fmt.Sprintf("%s: found where number %d should be", name, i+1))
		}
		if v.Deleted != (v.Data == nil) {
			problems = append(problems, name+": a tombstone with data, or a document without")
		}
		end := driver.Forever
		if i+1 < len(versions) {
			end = versions[i+1].RecordedAt
			if end <= v.RecordedAt {
				problems = append(problems, fmt.Sprintf("%s: recorded at %s, not before the next one, of %s", name, v.RecordedAt, end))
			}
		}
		if v.SupersededAt != end {
			problems = append(problems, fmt.Sprintf("%s: superseded at %s, but the next one is of %s", name, v.SupersededAt, end))
		}
	}
	return problems
}
