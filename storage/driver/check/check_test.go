package check

import (
	"cmp"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func TestRefuses(t *testing.T) {
	path := []string{"a"}
	write := func(change func(*driver.Write)) error {
		w := &driver.Write{ID: "id", Key: "k", Op: driver.OpUpdate, Data: []byte(`{}`)}
		change(w)
		return Write(w)
	}
	loaded := func(change func(*driver.Version)) error {
		v := &driver.Version{Key: "k", RecordedAt: 1, Op: driver.OpImport, Data: []byte(`{}`)}
		change(v)
		return Loaded(v)
	}
	for _, c := range []struct {
		name string
		err  error
		want string // empty: not refused
	}{
		{"a write", write(func(*driver.Write) {}), ""},
		{"a tombstone", write(func(w *driver.Write) { w.Deleted, w.Data = true, nil }), ""},
		{"no ID", write(func(w *driver.Write) { w.ID = "" }), "an ID of 1 to 36 bytes"},
		{"a long ID", write(func(w *driver.Write) { w.ID = strings.Repeat("x", 37) }), "got 37"},
		{"a negative version", write(func(w *driver.Write) { w.Expected = -1 }), "version numbers start at 1"},
		{"no key", write(func(w *driver.Write) { w.Key = "" }), "has no key"},
		{"a broken key", write(func(w *driver.Write) { w.Key = "\xff" }), "not valid UTF-8"},
		{"no operation", write(func(w *driver.Write) { w.Op = 0 }), "unknown operation"},
		{"a tombstone with data", write(func(w *driver.Write) { w.Deleted = true }), "a tombstone has no data"},
		{"a list", write(func(w *driver.Write) { w.Data = []byte(`[]`) }), "not a JSON object"},
		{"half an object", write(func(w *driver.Write) { w.Data = []byte(`{"a":`) }), "not a JSON object"},
		{"broken text", write(func(w *driver.Write) { w.Data = []byte("{\"a\":\"\xff\"}") }), "valid UTF-8"},
		{"a version", loaded(func(*driver.Version) {}), ""},
		{"before 1970", loaded(func(v *driver.Version) { v.RecordedAt = 0 }), "not after 1970"},
		{"a negative number", loaded(func(v *driver.Version) { v.Number = -1 }), "start at 1"},
		{"a field", Field(driver.Field{Path: path, Kind: driver.KindInt}, false), ""},
		{"an element", Field(driver.Field{Kind: driver.KindInt}, true), ""},
		{"a key", Field(driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, false), ""},
		{"no path", Place(driver.Field{}, false), "no path"},
		{"a key with a path", Place(driver.Field{Meta: driver.MetaKey, Path: path}, true), "has no path"},
		{"another value of the version", Place(driver.Field{Meta: driver.MetaGroup + 1}, false), "not a field"},
		{"no kind", Field(driver.Field{Path: path}, false), "not a kind"},
		{"a key of another kind", Field(driver.Field{Meta: driver.MetaKey, Kind: driver.KindInt}, false), "is of kind 1, not 2"},
		{"another operation", write(func(w *driver.Write) { w.Op = driver.OpImport + 1 }), "unknown operation"},
		{"a kind that is not there yet", Field(driver.Field{Path: path, Kind: driver.KindDecimal + 1}, false), "not a kind"},
		{"an object", Field(driver.Field{Path: path, Kind: driver.KindObject}, false), "not a kind"},
		{"an object that is there", Present(driver.Present{Field: driver.Field{Path: path, Kind: driver.KindObject}}, false), ""},
		{"what is there, of any kind", Present(driver.Present{Field: driver.Field{Path: path}}, false), ""},
		{"what is there, of no kind", Present(driver.Present{Field: driver.Field{Path: path, Kind: driver.KindObject + 1}}, false), "not a kind"},
		{"what is nowhere", Present(driver.Present{}, false), "no path"},
		{"no relation", Compare(driver.Compare{Field: driver.Field{Path: path, Kind: driver.KindInt}}, false), "unknown comparison"},
		{"another relation", Compare(driver.Compare{Field: driver.Field{Path: path, Kind: driver.KindInt}, Op: driver.Ge + 1}, false), "unknown comparison"},
		{"text of a number", Text(driver.Text{Field: driver.Field{Path: path, Kind: driver.KindInt}, Op: driver.Equals}, false), "needs a field of strings"},
		{"another match", Text(driver.Text{Field: driver.Field{Path: path, Kind: driver.KindString}}, false), "unknown text match"},
		{"a match too many", Text(driver.Text{Field: driver.Field{Path: path, Kind: driver.KindString}, Op: driver.Equals + 1}, false), "unknown text match"},
		{"a key as a list", Any(driver.Any{Field: driver.Field{Meta: driver.MetaKey}}, false), "is not a list"},
		{"a place in another order", Position(&driver.Position{Key: "k"}, make([]driver.Order, 1)), "of 0 values in an order of 1"},
		{"a log", Log(&driver.LogQuery{Collections: path, Keys: path, Limit: 1}), ""},
		{"a log of keys of nothing", Log(&driver.LogQuery{Keys: path}), "exactly one collection, got 0"},
		{"a log of keys of two", Log(&driver.LogQuery{Keys: path, Collections: []string{"a", "b"}}), "exactly one collection, got 2"},
		{"a log with a negative limit", Log(&driver.LogQuery{Limit: -1}), "the limit -1 is negative"},
		{"no place", Position(nil, make([]driver.Order, 1)), ""},
	} {
		switch {
		case c.want == "" && c.err != nil:
			t.Errorf("%s is refused: %v", c.name, c.err)
		case c.want != "" && (driver.CodeOf(c.err) != driver.CodeInvalid || !strings.Contains(c.err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, c.err, c.want)
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
