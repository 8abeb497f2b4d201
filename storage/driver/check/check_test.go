package check

import (
	"cmp"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func TestRefuses(t *testing.T) {
	data := []byte(`{}`)
	for _, c := range []struct {
		name string
		v    driver.Version
		want string // empty: not refused
	}{
		{"a version", driver.Version{Key: "k", Op: driver.OpUpdate, Data: data}, ""},
		{"a tombstone", driver.Version{Key: "k", Op: driver.OpDelete, Deleted: true}, ""},
		{"a pruned version", driver.Version{Key: "k", Op: driver.OpPruned, Deleted: true}, ""},
		{"no key", driver.Version{Op: driver.OpUpdate, Data: data}, "has no key"},
		{"a broken key", driver.Version{Key: "\xff", Op: driver.OpUpdate, Data: data}, "not valid UTF-8"},
		{"no operation", driver.Version{Key: "k", Data: data}, "unknown operation"},
		{"another operation", driver.Version{Key: "k", Op: driver.OpErase + 1, Data: data}, "unknown operation"},
		{"a pruned version with data", driver.Version{Key: "k", Op: driver.OpPruned, Data: data}, "has no data"},
		{"a tombstone with data", driver.Version{Key: "k", Op: driver.OpDelete, Deleted: true, Data: data}, "a tombstone has no data"},
		{"a list", driver.Version{Key: "k", Op: driver.OpUpdate, Data: []byte(`[]`)}, "not a JSON object"},
		{"half an object", driver.Version{Key: "k", Op: driver.OpUpdate, Data: []byte(`{"a":`)}, "not a JSON object"},
		{"broken text", driver.Version{Key: "k", Op: driver.OpUpdate, Data: []byte("{\"a\":\"\xff\"}")}, "valid UTF-8"},
		{"no data", driver.Version{Key: "k", Op: driver.OpUpdate}, "not a JSON object"},
		{"null", driver.Version{Key: "k", Op: driver.OpUpdate, Data: []byte(`null`)}, "not a JSON object"},
		{"an object and more", driver.Version{Key: "k", Op: driver.OpUpdate, Data: []byte(`{}{}`)}, "not a JSON object"},
	} {
		switch err := Stored(&c.v); {
		case c.want == "" && err != nil:
			t.Errorf("%s is refused: %v", c.name, err)
		case c.want != "" && (driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestRelates(t *testing.T) {
	for op, want := range map[driver.CompareOp]string{driver.Eq: "=", driver.Lt: "<", driver.Le: "<=", driver.Gt: ">", driver.Ge: "=>"} {
		got := ""
		for i, sign := range []string{"<", "=", ">"} {
			if Relates(cmp.Compare(i, 1), op) {
				got += sign
			}
		}
		if got != want {
			t.Errorf("%d holds for %q, want %q", op, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	for op, want := range map[driver.TextOp]string{driver.Contains: "ab b bc abc ", driver.HasPrefix: "ab abc ", driver.HasSuffix: "bc abc ", driver.Equals: "abc "} {
		got := ""
		for _, other := range []string{"ab", "b", "bc", "abc", "abcd"} {
			if Matches([]byte("abc"), []byte(other), op) {
				got += other + " "
			}
		}
		if got != want {
			t.Errorf("%d matches %q, want %q", op, got, want)
		}
	}
}
