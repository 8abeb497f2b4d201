// Package check has what all engines refuse, as a Guard in front of them, and how
// they compare, so that they do so alike. The oracle of the conformance suite has
// rules of its own, to find mistakes in these.
package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// MetaKind is the kind of a value that versions carry; 0 for other values.
func MetaKind(m driver.Meta) driver.Kind {
	switch m {
	case driver.MetaKey, driver.MetaAuthor, driver.MetaMessage, driver.MetaGroup:
		return driver.KindString
	case driver.MetaNumber, driver.MetaOp:
		return driver.KindInt
	case driver.MetaRecordedAt:
		return driver.KindInstant
	case driver.MetaNone:
	}
	return 0
}

// Relates reports whether two values relate, of which cmp.Compare or the like
// said in which order they are.
func Relates(order int, op driver.CompareOp) bool {
	switch op {
	case driver.Eq:
		return order == 0
	case driver.Lt:
		return order < 0
	case driver.Le:
		return order <= 0
	case driver.Gt:
		return order > 0
	default:
		return order >= 0
	}
}

// Matches reports whether a text matches another, both folded where case is
// ignored.
func Matches(text, other []byte, op driver.TextOp) bool {
	switch op {
	case driver.Contains:
		return bytes.Contains(text, other)
	case driver.HasPrefix:
		return bytes.HasPrefix(text, other)
	case driver.HasSuffix:
		return bytes.HasSuffix(text, other)
	default:
		return bytes.Equal(text, other)
	}
}

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

// KeyRange is the keys from Low on, before High; High is empty where there is no end.
type KeyRange struct{ Low, High string }

// One returns the key of a range that holds no other.
func (r KeyRange) One() (key string, ok bool) { return r.Low, r.High == r.Low+"\x00" }

// Keys returns the ranges that hold the keys of all documents that a filter accepts,
// ascending and apart from each other; false where it may accept any key. Not all keys in
// them need be accepted: of several conditions that must hold it looks at the first that is about the key.
func Keys(f driver.Filter) (ranges []KeyRange, bounded bool) {
	switch f := f.(type) {
	case driver.And:
		for _, g := range f {
			if ranges, bounded = Keys(g); bounded {
				break
			}
		}
		return ranges, bounded
	case driver.Compare:
		if f.Field.Meta == driver.MetaKey && f.Op == driver.Eq {
			return Keys(driver.In{Field: f.Field, Values: []driver.Value{f.Value}})
		}
	case driver.In:
		if f.Field.Meta != driver.MetaKey {
			return nil, false
		}
		for _, v := range f.Values {
			key, _ := v.(string)
			ranges = append(ranges, KeyRange{key, key + "\x00"})
		}
		slices.SortFunc(ranges, func(a, b KeyRange) int { return strings.Compare(a.Low, b.Low) })
		return slices.Compact(ranges), true
	case driver.Text:
		if f.Field.Meta == driver.MetaKey && f.Op == driver.HasPrefix && !f.Fold {
			return []KeyRange{{f.Value, afterPrefix(f.Value)}}, true
		}
	}
	return nil, false
}

// KeysBeyond returns those parts of ranges that hold the keys after one, or before it.
func KeysBeyond(ranges []KeyRange, key string, after bool) (parts []KeyRange) {
	for _, r := range ranges {
		switch {
		case after:
			r.Low = max(r.Low, key+"\x00")
		case r.Low >= key:
			continue
		case r.High == "" || key < r.High:
			r.High = key
		}
		if r.High == "" || r.Low < r.High {
			parts = append(parts, r)
		}
	}
	return parts
}

// afterPrefix is the least text after all that begin with a prefix; empty where there is none.
func afterPrefix(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		const beforeSurrogates, afterSurrogates = 0xD7FF, 0xE000 // what is between is no text
		switch {
		case last == beforeSurrogates:
			return prefix + string(rune(afterSurrogates))
		case last < utf8.MaxRune:
			return prefix + string(last+1)
		}
	}
	return ""
}
