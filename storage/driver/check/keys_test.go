package check

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

func TestKeys(t *testing.T) {
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	is := func(op driver.CompareOp, value string) driver.Filter {
		return driver.Compare{Field: key, Op: op, Value: value}
	}
	begins := func(with string) driver.Filter {
		return driver.Text{Field: key, Op: driver.HasPrefix, Value: with}
	}
	other := driver.Compare{Field: driver.Field{Path: []string{"a"}, Kind: driver.KindString}, Op: driver.Eq, Value: "x"}
	one := func(k string) KeyRange { return KeyRange{k, k + "\x00"} }
	any := []KeyRange(nil)
	for _, c := range []struct {
		name    string
		filter  driver.Filter
		want    []KeyRange
		bounded bool
	}{
		{"no filter", nil, any, false},
		{"another field", other, any, false},
		{"a key", is(driver.Eq, "k"), []KeyRange{one("k")}, true},
		{"the empty key", is(driver.Eq, ""), []KeyRange{one("")}, true},
		{"before", is(driver.Lt, "k"), []KeyRange{{"", "k"}}, true},
		{"before all", is(driver.Lt, ""), nil, true},
		{"up to", is(driver.Le, "k"), []KeyRange{{"", "k\x00"}}, true},
		{"after", is(driver.Gt, "k"), []KeyRange{{"k\x00", ""}}, true},
		{"from", is(driver.Ge, "k"), []KeyRange{{"k", ""}}, true},
		{"some", driver.In{Field: key, Values: []driver.Value{"b", "a", "b"}}, []KeyRange{one("a"), one("b")}, true},
		{"neighbours", driver.In{Field: key, Values: []driver.Value{"a\x00", "a"}}, []KeyRange{one("a"), one("a\x00")}, true},
		{"none", driver.In{Field: key}, nil, true},
		{"a beginning", begins("k"), []KeyRange{{"k", "l"}}, true},
		{"any beginning", begins(""), []KeyRange{{"", ""}}, true},
		{"a beginning at the end of a plane", begins("a\uD7FF"), []KeyRange{{"a\uD7FF", "a\uE000"}}, true},
		{"a beginning with the last character", begins("a\U0010FFFF"), []KeyRange{{"a\U0010FFFF", "b"}}, true},
		{"a beginning that is no text", begins("\xC3"), any, false},
		{"in any case", driver.Text{Field: key, Op: driver.HasPrefix, Value: "k", Fold: true}, any, false},
		{"an end", driver.Text{Field: key, Op: driver.HasSuffix, Value: "k"}, any, false},
		{"negated", driver.Not{Filter: is(driver.Eq, "k")}, any, false},
		{"both", driver.And{is(driver.Ge, "b"), other, is(driver.Lt, "d")}, []KeyRange{{"b", "d"}}, true},
		{"both, which excludes all", driver.And{is(driver.Eq, "b"), is(driver.Eq, "d")}, nil, true},
		{"one of two", driver.Or{begins("c"), is(driver.Eq, "a")}, []KeyRange{one("a"), {"c", "d"}}, true},
		{"one of two that overlap", driver.Or{is(driver.Lt, "c"), is(driver.Gt, "b")}, []KeyRange{{"", ""}}, true},
		{"one of two without keys", driver.Or{is(driver.Eq, "a"), other}, any, false},
		{"one of none", driver.Or{}, nil, true},
		{"all of none", driver.And{}, any, false},
	} {
		got, bounded := Keys(c.filter)
		if diff := cmp.Diff(c.want, got); diff != "" || bounded != c.bounded {
			t.Errorf("%s: bounded %t, want %t (-want +got):\n%s", c.name, bounded, c.bounded, diff)
		}
	}
}

// Joins and intersections hold the keys that they should, of few that are close to each
// other.
func TestKeyRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "\x00", "a", "a\x00", "a\x00\x00", "aa", "b"}
	some := func() []KeyRange {
		var list []KeyRange
		for range random.IntN(4) {
			r := KeyRange{texts[random.IntN(len(texts))], texts[random.IntN(len(texts))]}
			if r.High == "" || r.Low < r.High {
				list = append(list, r)
			}
		}
		return list
	}
	holds := func(list []KeyRange, key string) bool {
		for _, r := range list {
			if r.Low <= key && (r.High == "" || key < r.High) {
				return true
			}
		}
		return false
	}
	for range 2000 {
		a, b := some(), some()
		joinedA, joinedB := joinedKeys(append([]KeyRange(nil), a...)), joinedKeys(append([]KeyRange(nil), b...))
		common := commonKeys(joinedA, joinedB)
		for i, key := range texts {
			if holds(joinedA, key) != holds(a, key) {
				t.Fatalf("%q of %q joined to %q", key, a, joinedA)
			}
			if holds(common, key) != (holds(a, key) && holds(b, key)) {
				t.Fatalf("%q of %q and %q, in common %q", key, a, b, common)
			}
			for _, after := range []bool{true, false} {
				beyond := KeysBeyond(joinedA, texts[i/2], after)
				if holds(beyond, key) != (holds(a, key) && key != texts[i/2] && (key > texts[i/2]) == after) {
					t.Fatalf("%q of %q beyond %q (%t): %q", key, joinedA, texts[i/2], after, beyond)
				}
			}
		}
		for i := range max(0, len(common)-1) {
			if common[i].High == "" || common[i].High > common[i+1].Low {
				t.Fatalf("%q and %q have in common %q", a, b, common)
			}
		}
	}
}
