package check

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func TestRefuses(t *testing.T) {
	path := []string{"a"}
	written := func(change func(*driver.Write)) error {
		w := &driver.Write{ID: "id", Key: "k", Op: driver.OpUpdate, Data: []byte(`{}`)}
		change(w)
		return write(w)
	}
	imported := func(change func(*driver.Version)) error {
		v := &driver.Version{Key: "k", RecordedAt: 1, Op: driver.OpImport, Data: []byte(`{}`)}
		change(v)
		return loaded(v)
	}
	replaced := func(change func(*driver.Version)) error {
		vs := []driver.Version{{Number: 1, Op: driver.OpUpdate, Data: []byte(`{}`)}, {Number: 2, Op: driver.OpPruned, Deleted: true}}
		change(&vs[1])
		return rewritten("c", "k", vs)
	}
	both := func(change func(ws []driver.Write)) error {
		ws := []driver.Write{{ID: "1", Key: "a"}, {ID: "2", Key: "b"}}
		change(ws)
		return together(ws, 2)
	}
	orders := []driver.Order{{Field: driver.Field{Path: path, Kind: driver.KindString}}, {Field: driver.Field{Path: path, Kind: driver.KindInt}}}
	for _, c := range []struct {
		name string
		err  error
		want string // empty: not refused
	}{
		{"a write", written(func(*driver.Write) {}), ""},
		{"a tombstone", written(func(w *driver.Write) { w.Deleted, w.Data = true, nil }), ""},
		{"no ID", written(func(w *driver.Write) { w.ID = "" }), "an ID of 1 to 36 bytes"},
		{"a long ID", written(func(w *driver.Write) { w.ID = strings.Repeat("x", 37) }), "got 37"},
		{"a negative version", written(func(w *driver.Write) { w.Expected = -1 }), "version numbers start at 1"},
		{"no key", written(func(w *driver.Write) { w.Key = "" }), "has no key"},
		{"a broken key", written(func(w *driver.Write) { w.Key = "\xff" }), "not valid UTF-8"},
		{"no operation", written(func(w *driver.Write) { w.Op = 0 }), "unknown operation"},
		{"a tombstone with data", written(func(w *driver.Write) { w.Deleted = true }), "a tombstone has no data"},
		{"a list", written(func(w *driver.Write) { w.Data = []byte(`[]`) }), "not a JSON object"},
		{"half an object", written(func(w *driver.Write) { w.Data = []byte(`{"a":`) }), "not a JSON object"},
		{"broken text", written(func(w *driver.Write) { w.Data = []byte("{\"a\":\"\xff\"}") }), "valid UTF-8"},
		{"no data", written(func(w *driver.Write) { w.Data = nil }), "not a JSON object"},
		{"null", written(func(w *driver.Write) { w.Data = []byte(`null`) }), "not a JSON object"},
		{"an object and more", written(func(w *driver.Write) { w.Data = []byte(`{}{}`) }), "not a JSON object"},
		{"two writes", both(func([]driver.Write) {}), ""},
		{"no writes", together(nil, 2), "makes no version"},
		{"comparisons only", both(func(ws []driver.Write) { ws[0].Compare, ws[1].Compare = true, true }), "makes no version"},
		{"too many writes", together(make([]driver.Write, 3), 2), "has 3 writes"},
		{"a document twice", both(func(ws []driver.Write) { ws[1].Key = "a" }), "two writes of"},
		{"an ID twice", both(func(ws []driver.Write) { ws[1].ID = "1" }), "two writes with the ID"},
		{"too much data", both(func(ws []driver.Write) { ws[1].Data = make([]byte, driver.MaxCommitBytes+1) }), "bytes of data"},
		{"a version", imported(func(*driver.Version) {}), ""},
		{"versions to rewrite", replaced(func(*driver.Version) {}), ""},
		{"no version to rewrite", replaced(func(v *driver.Version) { v.Number = 0 }), "start at 1"},
		{"a version rewritten twice", replaced(func(v *driver.Version) { v.Number = 1 }), "twice at once"},
		{"a version pruned to data", replaced(func(v *driver.Version) { v.Deleted = false }), "has no data"},
		{"a version rewritten to half an object", replaced(func(v *driver.Version) { v.Op, v.Deleted, v.Data = driver.OpUpdate, false, []byte(`{`) }), "not a JSON object"},
		{"versions of no key", rewritten("c", "", nil), "has no key"},
		{"before 1970", imported(func(v *driver.Version) { v.RecordedAt = 0 }), "not after 1970"},
		{"a negative number", imported(func(v *driver.Version) { v.Number = -1 }), "start at 1"},
		{"a field", field(driver.Field{Path: path, Kind: driver.KindInt}, 0), ""},
		{"an element", field(driver.Field{Kind: driver.KindInt}, 1), ""},
		{"a key", field(driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, 0), ""},
		{"no path", place(driver.Field{}, 0), "no path"},
		{"a key with a path", place(driver.Field{Meta: driver.MetaKey, Path: path}, 0), "has no path"},
		{"another value of the version", place(driver.Field{Meta: driver.MetaGroup + 1}, 0), "not a field"},
		{"no kind", field(driver.Field{Path: path}, 0), "not a kind"},
		{"a key of another kind", field(driver.Field{Meta: driver.MetaKey, Kind: driver.KindInt}, 0), "is of kind 1, not 2"},
		{"another operation", written(func(w *driver.Write) { w.Op = driver.OpErase + 1 }), "unknown operation"},
		{"a pruned version", written(func(w *driver.Write) { w.Op, w.Deleted, w.Data = driver.OpPruned, true, nil }), "cannot make a pruned"},
		{"a pruned version with data", imported(func(v *driver.Version) { v.Op = driver.OpPruned }), "has no data"},
		{"a kind that is not there yet", field(driver.Field{Path: path, Kind: driver.KindDecimal + 1}, 0), "not a kind"},
		{"an object", field(driver.Field{Path: path, Kind: driver.KindObject}, 0), "not a kind"},
		{"an object that is there", filter(driver.Present{Field: driver.Field{Path: path, Kind: driver.KindObject}}, 0), ""},
		{"what is there, of any kind", filter(driver.Present{Field: driver.Field{Path: path}}, 0), ""},
		{"what is there, of no kind", filter(driver.Present{Field: driver.Field{Path: path, Kind: driver.KindObject + 1}}, 0), "not a kind"},
		{"what is nowhere", filter(driver.Present{}, 0), "no path"},
		{"no relation", filter(driver.Compare{Field: driver.Field{Path: path, Kind: driver.KindInt}}, 0), "unknown comparison"},
		{"another relation", filter(driver.Compare{Field: driver.Field{Path: path, Kind: driver.KindInt}, Op: driver.Ge + 1}, 0), "unknown comparison"},
		{"text of a number", filter(driver.Text{Field: driver.Field{Path: path, Kind: driver.KindInt}, Op: driver.Equals}, 0), "needs a field of strings"},
		{"another match", filter(driver.Text{Field: driver.Field{Path: path, Kind: driver.KindString}}, 0), "unknown text match"},
		{"a match too many", filter(driver.Text{Field: driver.Field{Path: path, Kind: driver.KindString}, Op: driver.Equals + 1}, 0), "unknown text match"},
		{"a key as a list", filter(driver.Any{Field: driver.Field{Meta: driver.MetaKey}}, 0), "is not a list"},
		{"a key that is there", filter(driver.Present{Field: driver.Field{Meta: driver.MetaKey}}, 0), "always there"},
		{"a key in a list", filter(driver.Any{Field: driver.Field{Path: path}, Filter: driver.In{Field: driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}}}, 0), "not in an element"},
		{"a deep field", field(driver.Field{Path: make([]string, driver.MaxDepth), Kind: driver.KindInt}, 0), ""},
		{"one that is too deep", filter(driver.Any{Field: driver.Field{Path: path}, Filter: driver.Present{Field: driver.Field{Path: make([]string, driver.MaxDepth-1)}}}, 0), "33 levels deep"},
		{"a place in another order", position(&driver.Position{Key: "k"}, make([]driver.Order, 1)), "of 0 values in an order of 1"},
		{"a log", log(&driver.LogQuery{Collections: path, Keys: path, Limit: 1}), ""},
		{"a log of keys of nothing", log(&driver.LogQuery{Keys: path}), "exactly one collection, got 0"},
		{"a log of keys of two", log(&driver.LogQuery{Keys: path, Collections: []string{"a", "b"}}), "exactly one collection, got 2"},
		{"a log with a negative limit", log(&driver.LogQuery{Limit: -1}), "the limit -1 is negative"},
		{"a value of another kind inside", filter(driver.And{driver.Or{}, driver.Not{Filter: driver.In{Field: driver.Field{Path: path, Kind: driver.KindInt}, Values: []driver.Value{int64(1), nil}}}}, 0), "not a value of kind 2"},
		{"no filter in a list", filter(driver.And{nil}, 0), "is missing"},
		{"no filter in a negation", filter(driver.Not{}, 0), "is missing"},
		{"a list that is not empty", filter(driver.Any{Field: driver.Field{Path: path}}, 0), ""},
		{"an element of no path", filter(driver.Any{Field: driver.Field{Path: path}, Filter: driver.Not{Filter: driver.Compare{Field: driver.Field{Kind: driver.KindInt}, Op: driver.Eq, Value: int64(1)}}}, 0), ""},
		{"a place", position(&driver.Position{Key: "k", Values: []driver.Value{nil, int64(1)}}, orders), ""},
		{"a place of another kind", position(&driver.Position{Key: "k", Values: []driver.Value{int64(1), int64(1)}}, orders), "not a value of kind 1"},
		{"a query", query(&driver.Query{Order: orders, Limit: 1}), ""},
		{"a query with a negative limit", query(&driver.Query{Limit: -1}), "the limit -1 is negative"},
		{"an order of nothing", query(&driver.Query{Order: make([]driver.Order, 1)}), "no path"},
		{"a query behind another order", query(&driver.Query{After: &driver.Position{Values: make([]driver.Value, 1)}}), "of 1 values in an order of 0"},
		{"a query before another order", query(&driver.Query{Before: &driver.Position{Values: make([]driver.Value, 1)}}), "of 1 values in an order of 0"},
		{"a malformed filter", query(&driver.Query{Filter: driver.Or{driver.Not{}}}), "is missing"},
		{"no place", position(nil, make([]driver.Order, 1)), ""},
	} {
		switch {
		case c.want == "" && c.err != nil:
			t.Errorf("%s is refused: %v", c.name, c.err)
		case c.want != "" && (driver.CodeOf(c.err) != driver.CodeInvalid || !strings.Contains(c.err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, c.err, c.want)
		}
	}
}

func TestValues(t *testing.T) {
	path := []string{"a"}
	for _, c := range []struct {
		value driver.Value
		kinds string // that it is of
	}{
		{nil, ""},
		{1, ""},
		{"a", "1"},
		{"", "1"},
		{int64(1), "2"},
		{1.5, "3"},
		{math.NaN(), ""},
		{math.Inf(-1), ""},
		{true, "4"},
		{driver.Instant(1), "5"},
		{"2024-02-29", "16"},
		{"2023-02-29", "1"},
		{"2024-2-29", "1"},
		{"1", "17"},
		{"-0.50e+0099", "17"},
		{"01", "1"},
		{"1e12345", "1"},
		{"1.", "1"},
		{"+1", "1"},
		{"1e", "1"},
	} {
		compared, among := "", ""
		for kind := driver.KindString; kind <= driver.KindDecimal; kind++ {
			f := driver.Field{Path: path, Kind: kind}
			if filter(driver.Compare{Field: f, Op: driver.Eq, Value: c.value}, 0) == nil {
				compared += fmt.Sprint(kind)
			}
			if filter(driver.In{Field: f, Values: []driver.Value{c.value}}, 0) == nil {
				among += fmt.Sprint(kind)
			}
		}
		if compared != c.kinds || among != c.kinds {
			t.Errorf("%v (%T) is of the kinds %q and in lists %q, want %q", c.value, c.value, compared, among, c.kinds)
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
