package check

import (
	"fmt"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// History follows the versions of one document, as they are stored, and says what in
// them cannot be. Its zero value is before the first version.
type History struct{ Last *driver.Version }

// Next takes the next version, in the order of numbers, and returns what is wrong with it.
func (h *History) Next(v *driver.Version) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var before []byte
	if last := h.Last; last == nil {
		if v.Number != 1 {
			problem("the first version is number %d", v.Number)
		}
	} else {
		before = last.Seal
		if v.Number != last.Number+1 {
			problem("version %d follows version %d", v.Number, last.Number)
		}
		if v.Key != last.Key {
			problem("version %d has the key %q", v.Number, v.Key)
		}
		if v.RecordedAt <= last.RecordedAt {
			problem("version %d, of %s, is not later than the one before, of %s", v.Number, v.RecordedAt, last.RecordedAt)
		}
		if v.RecordedAt != last.SupersededAt {
			problem("version %d is of %s, but the one before it ended at %s", v.Number, v.RecordedAt, last.SupersededAt)
		}
	}
	if v.RecordedAt <= 0 || v.SupersededAt <= v.RecordedAt {
		problem("version %d is of %s, and was superseded at %s", v.Number, v.RecordedAt, v.SupersededAt)
	}
	if err := Stored(v); err != nil {
		problem("version %d: %v", v.Number, err)
	}
	if err := seal.Verify(before, v); err != nil {
		problem("version %d %v", v.Number, err)
	}
	h.Last = v
	return problems
}

// End returns what is wrong with a history that has no further version.
func (h *History) End() (problems []string) {
	switch {
	case h.Last == nil:
		return []string{"the document has no history"}
	case !h.Last.Current():
		return []string{fmt.Sprintf("the current version, %d, was superseded", h.Last.Number)}
	}
	return nil
}
