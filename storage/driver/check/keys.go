package check

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
)

// KeyRange is the keys from Low on, before High; High is empty where there is no end.
type KeyRange struct{ Low, High string }

// One returns the key of a range that holds no other.
func (r KeyRange) One() (key string, ok bool) { return r.Low, r.High == r.Low+"\x00" }

// Keys returns the ranges that hold the keys of all documents that a filter accepts,
// ascending and apart from each other; false where it may accept any key. Not all keys in
// them need be accepted. It never looks into a Not, and not at texts that are not UTF-8.
func Keys(f driver.Filter) (ranges []KeyRange, bounded bool) {
	switch f := f.(type) {
	case driver.And:
		for _, g := range f {
			switch more, ok := Keys(g); {
			case ok && bounded:
				ranges = commonKeys(ranges, more)
			case ok:
				ranges, bounded = more, true
			}
		}
		return ranges, bounded
	case driver.Or:
		for _, g := range f {
			more, ok := Keys(g)
			if !ok {
				return nil, false
			}
			ranges = append(ranges, more...)
		}
		return joinedKeys(ranges), true
	case driver.Compare:
		return comparedKeys(f)
	case driver.In:
		if f.Field.Meta != driver.MetaKey {
			return nil, false
		}
		for _, v := range f.Values {
			key, ok := v.(string)
			if !ok || !utf8.ValidString(key) {
				return nil, false
			}
			ranges = append(ranges, KeyRange{key, key + "\x00"})
		}
		return joinedKeys(ranges), true
	case driver.Text:
		exact := !f.Fold && f.Field.Meta == driver.MetaKey && utf8.ValidString(f.Value)
		switch {
		case exact && f.Op == driver.Equals:
			return []KeyRange{{f.Value, f.Value + "\x00"}}, true
		case exact && f.Op == driver.HasPrefix:
			return []KeyRange{{f.Value, afterPrefix(f.Value)}}, true
		}
	}
	return nil, false
}

// KeysBeyond returns those parts of ranges that hold the keys after one, or before it.
func KeysBeyond(ranges []KeyRange, key string, after bool) []KeyRange {
	if after {
		return commonKeys(ranges, []KeyRange{{Low: key + "\x00"}})
	}
	if key == "" {
		return nil
	}
	return commonKeys(ranges, []KeyRange{{High: key}})
}

func comparedKeys(f driver.Compare) ([]KeyRange, bool) {
	key, ok := f.Value.(string)
	if f.Field.Meta != driver.MetaKey || !ok || !utf8.ValidString(key) {
		return nil, false
	}
	switch f.Op {
	case driver.Eq:
		return []KeyRange{{key, key + "\x00"}}, true
	case driver.Le:
		return []KeyRange{{High: key + "\x00"}}, true
	case driver.Gt:
		return []KeyRange{{Low: key + "\x00"}}, true
	case driver.Ge:
		return []KeyRange{{Low: key}}, true
	case driver.Lt:
		if key == "" {
			return nil, true
		}
		return []KeyRange{{High: key}}, true
	}
	return nil, false
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

// compareEnds compares the ends of ranges, of which the empty one is the last.
func compareEnds(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(b, a)
	}
	return strings.Compare(a, b)
}

// joinedKeys are the same keys as ranges that are ascending and apart from each other.
func joinedKeys(list []KeyRange) (joined []KeyRange) {
	slices.SortFunc(list, func(a, b KeyRange) int { return strings.Compare(a.Low, b.Low) })
	for _, r := range list {
		last := len(joined) - 1
		switch {
		case last < 0 || joined[last].High != "" && joined[last].High <= r.Low:
			joined = append(joined, r)
		case compareEnds(joined[last].High, r.High) < 0:
			joined[last].High = r.High
		}
	}
	return joined
}

// commonKeys are the keys that two lists of ranges have in common.
func commonKeys(a, b []KeyRange) (common []KeyRange) {
	for len(a) > 0 && len(b) > 0 {
		low, high := max(a[0].Low, b[0].Low), a[0].High
		before := compareEnds(a[0].High, b[0].High) < 0
		if !before {
			high = b[0].High
		}
		if high == "" || low < high {
			common = append(common, KeyRange{low, high})
		}
		if before {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return common
}
