package sqlitestore

import (
	"slices"
	"testing"
)

func TestNamesRoundTrip(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"stars", "updated_at2"}, {"A", "", "z"}, {"ключ"}, {`a"b`}, {"a.b", "<", "\u2028\x00"}, {"@", "[", "`", "{"}} {
		if got, err := decodeNames([]byte(encodeNames(names))); err != nil || !slices.Equal(got, names) {
			t.Errorf("%q became %q, %v", names, got, err)
		}
	}
	if got := encodeNames(nil); got != "" {
		t.Errorf("no names became %q", got)
	}
}

// A member is found by its name as documents have it, whatever is in the name.
func TestPathsFindQuotedNames(t *testing.T) {
	p := newPaths()
	p.add([]string{"a\"\u2028<", "b"}, 0)
	slots := make([][]byte, 1)
	p.find([]byte("{\"a\\\"\u2028<\":{\"b\":[1,2]}}"), slots)
	if string(slots[0]) != "[1,2]" {
		t.Errorf("found %q", slots[0])
	}
}
