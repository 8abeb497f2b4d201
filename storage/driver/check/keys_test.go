package check

import (
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
		{"some", driver.In{Field: key, Values: []driver.Value{"b", "a", "b"}}, []KeyRange{one("a"), one("b")}, true},
		{"neighbours", driver.In{Field: key, Values: []driver.Value{"a\x00", "a"}}, []KeyRange{one("a"), one("a\x00")}, true},
		{"none", driver.In{Field: key}, nil, true},
		{"a beginning", begins("k"), []KeyRange{{"k", "l"}}, true},
		{"any beginning", begins(""), []KeyRange{{"", ""}}, true},
		{"a beginning at the end of a plane", begins("a\uD7FF"), []KeyRange{{"a\uD7FF", "a\uE000"}}, true},
		{"a beginning with the last character", begins("a\U0010FFFF"), []KeyRange{{"a\U0010FFFF", "b"}}, true},
		{"in any case", driver.Text{Field: key, Op: driver.HasPrefix, Value: "k", Fold: true}, any, false},
		{"an end", driver.Text{Field: key, Op: driver.HasSuffix, Value: "k"}, any, false},
		{"negated", driver.Not{Filter: is(driver.Eq, "k")}, any, false},
		{"both", driver.And{other, begins("b"), is(driver.Eq, "bc")}, []KeyRange{{"b", "c"}}, true},
		{"within a list of all", driver.And{other, driver.And{is(driver.Eq, "b")}}, []KeyRange{one("b")}, true},
		{"a comparison", is(driver.Ge, "k"), any, false},
		{"one of two", driver.Or{is(driver.Eq, "a"), is(driver.Eq, "b")}, any, false},
		{"all of none", driver.And{}, any, false},
	} {
		got, bounded := Keys(c.filter)
		if diff := cmp.Diff(c.want, got); diff != "" || bounded != c.bounded {
			t.Errorf("%s: bounded %t, want %t (-want +got):\n%s", c.name, bounded, c.bounded, diff)
		}
	}
}

// What is beyond a key is what it should be, of few that are close to each other.
func TestKeysBeyond(t *testing.T) {
	texts := []string{"", "\x00", "a", "a\x00", "a\x00\x00", "aa", "b"}
	holds := func(list []KeyRange, key string) bool {
		for _, r := range list {
			if r.Low <= key && (r.High == "" || key < r.High) {
				return true
			}
		}
		return false
	}
	for _, list := range [][]KeyRange{{{}}, {{"a", ""}}, {{"", "a\x00"}, {"a\x00\x00", "b"}}, {{"\x00", "a"}, {"aa", "ab"}, {"b", ""}}, nil} {
		for _, beyond := range texts {
			for _, after := range []bool{true, false} {
				got := KeysBeyond(list, beyond, after)
				for _, key := range texts {
					if holds(got, key) != (holds(list, key) && key != beyond && (key > beyond) == after) {
						t.Errorf("%q of %q beyond %q (%t): %q", key, list, beyond, after, got)
					}
				}
				for i, r := range got {
					if i > 0 && (got[i-1].High == "" || got[i-1].High > r.Low) {
						t.Errorf("%q beyond %q (%t): %q", list, beyond, after, got)
					}
				}
			}
		}
	}
}
