// Package check has what all engines refuse, as a Guard in front of them, and how
// they compare, so that they do so alike. The oracle of the conformance suite has
// rules of its own, to find mistakes in these.
//
// What is malformed is a *driver.Error with CodeInvalid.
package check

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

func invalidf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

// log refuses a malformed query of the log, see driver.Engine.Log. Its collections
// must be known.
func log(q *driver.LogQuery) error {
	if len(q.Keys) > 0 && len(q.Collections) != 1 {
		return invalidf("a log of keys needs exactly one collection, got %d", len(q.Collections))
	}
	return limit(q.Limit)
}

func limit(n int) error {
	if n < 0 {
		return invalidf("the limit %d is negative", n)
	}
	return nil
}

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

// query refuses a malformed query, see driver.Engine.Query. Its collection must be
// known.
func query(q *driver.Query) error {
	if err := limit(q.Limit); err != nil {
		return err
	}
	for _, o := range q.Order {
		if err := field(o.Field, 0); err != nil {
			return err
		}
	}
	for _, p := range [...]*driver.Position{q.After, q.Before} {
		if err := position(p, q.Order); err != nil {
			return err
		}
	}
	if q.Filter == nil {
		return nil
	}
	return filter(q.Filter, 0)
}

// position refuses a place in another order.
func position(p *driver.Position, order []driver.Order) error {
	if p == nil {
		return nil
	}
	if len(p.Values) != len(order) {
		return invalidf("a position of %d values in an order of %d fields", len(p.Values), len(order))
	}
	for i, o := range order {
		if p.Values[i] == nil {
			continue
		}
		if err := value(p.Values[i], o.Field.Kind); err != nil {
			return err
		}
	}
	return nil
}

// filter refuses a malformed filter. Inside an Any, the depth of its elements is greater
// than 0: paths start at the element, and may be empty.
func filter(f driver.Filter, depth int) error {
	switch f := f.(type) {
	case driver.And:
		return filters(f, depth)
	case driver.Or:
		return filters(f, depth)
	case driver.Not:
		return filter(f.Filter, depth)
	case driver.Compare:
		if f.Op < driver.Eq || f.Op > driver.Ge {
			return invalidf("unknown comparison %d", f.Op)
		}
		if err := field(f.Field, depth); err != nil {
			return err
		}
		return value(f.Value, f.Field.Kind)
	case driver.In:
		if err := field(f.Field, depth); err != nil {
			return err
		}
		for _, v := range f.Values {
			if err := value(v, f.Field.Kind); err != nil {
				return err
			}
		}
		return nil
	case driver.Text:
		if err := field(f.Field, depth); err != nil {
			return err
		}
		switch {
		case f.Field.Kind != driver.KindString:
			return invalidf("a text match needs a field of strings, not of kind %d", f.Field.Kind)
		case f.Op < driver.Contains || f.Op > driver.Equals:
			return invalidf("unknown text match %d", f.Op)
		}
		return nil
	case driver.Present:
		if f.Field.Kind > driver.KindObject {
			return invalidf("%d is not a kind of field %q", f.Field.Kind, f.Field.Path)
		}
		if err := inDocument(f.Field); err != nil {
			return err
		}
		return place(f.Field, depth)
	case driver.Any:
		if err := inDocument(f.Field); err != nil {
			return err
		}
		if err := place(f.Field, depth); err != nil || f.Filter == nil {
			return err
		}
		return filter(f.Filter, depth+len(f.Field.Path)+1)
	case nil:
		return invalidf("a filter inside another is missing")
	default:
		return invalidf("unknown filter %T", f)
	}
}

func filters(list []driver.Filter, depth int) error {
	for _, f := range list {
		if err := filter(f, depth); err != nil {
			return err
		}
	}
	return nil
}

// place refuses a field that leads nowhere.
func place(f driver.Field, depth int) error {
	switch {
	case f.Meta != driver.MetaNone && MetaKind(f.Meta) == 0:
		return invalidf("%d is not a field that versions carry", f.Meta)
	case f.Meta != driver.MetaNone && len(f.Path) > 0:
		return invalidf("a field that versions carry has no path, got %q", f.Path)
	case f.Meta != driver.MetaNone && depth > 0:
		return invalidf("a field that versions carry is not in an element of a list")
	case f.Meta == driver.MetaNone && len(f.Path) == 0 && depth == 0:
		return invalidf("a field has no path")
	case depth+len(f.Path) > driver.MaxDepth:
		return invalidf("a field is %d levels deep, more than %d", depth+len(f.Path), driver.MaxDepth)
	}
	return nil
}

// inDocument refuses a field that versions carry, where that is neither a list nor null.
func inDocument(f driver.Field) error {
	if f.Meta != driver.MetaNone {
		return invalidf("a field that versions carry is not a list, and always there")
	}
	return nil
}

// field refuses a field that cannot be compared: one without a place, or without a
// kind.
func field(f driver.Field, depth int) error {
	if err := place(f, depth); err != nil {
		return err
	}
	switch {
	case f.Kind < driver.KindString || f.Kind > driver.KindDecimal:
		return invalidf("%d is not a kind of field %q", f.Kind, f.Path)
	case f.Meta != driver.MetaNone && f.Kind != MetaKind(f.Meta):
		return invalidf("a field that versions carry (%d) is of kind %d, not %d", f.Meta, MetaKind(f.Meta), f.Kind)
	}
	return nil
}

// value refuses a value that is not of a kind.
func value(v driver.Value, kind driver.Kind) error {
	ok := false
	switch v := v.(type) {
	case string:
		ok = kind == driver.KindString || kind == driver.KindDate && literal.IsDate(v) || kind == driver.KindDecimal && literal.IsDecimal(v)
	case int64:
		ok = kind == driver.KindInt
	case float64:
		ok = kind == driver.KindFloat && !math.IsNaN(v) && !math.IsInf(v, 0)
	case bool:
		ok = kind == driver.KindBool
	case driver.Instant:
		ok = kind == driver.KindInstant
	}
	if !ok {
		return invalidf("%v (%T) is not a value of kind %d", v, v, kind)
	}
	return nil
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
