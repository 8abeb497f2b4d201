package diff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/normal"
)

func show(changes []diff.Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, strings.TrimRight(fmt.Sprintf("%s %s %s %s", map[diff.Op]string{diff.Add: "ADD", diff.Replace: "REPLACE", diff.Remove: "REMOVE"}[c.Op], c.Path, c.Old, c.New), " "))
	}
	return out
}

func TestValues(t *testing.T) {
	tests := []struct {
		name, old, now string
		want           []string
	}{
		{"equal but for order", `{"a":1,"b":{"x":1,"y":2}}`, `{"b":{"y":2,"x":1},"a":1}`, nil},
		{"members", `{"a":1,"b":2,"c":null}`, `{"b":3,"d":4}`, []string{"REMOVE /a 1", "REPLACE /b 2 3", "REMOVE /c null", "ADD /d  4"}},
		{"null is a value", `{"a":null}`, `{"a":1}`, []string{"REPLACE /a null 1"}},
		{"nested", `{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":1,"d":3}}}`, []string{"REPLACE /a/b/d 2 3"}},
		{"names are escaped", `{"a/b":1,"m~n":1}`, `{"a/b":2,"m~n":2}`, []string{"REPLACE /a~1b 1 2", "REPLACE /m~0n 1 2"}},
		{"kinds", `{"a":{"b":1}}`, `{"a":[1]}`, []string{`REPLACE /a {"b":1} [1]`}},
		{"insert at the head", `{"l":["a","b","c"]}`, `{"l":["x","a","b","c"]}`, []string{`ADD /l/0  "x"`}},
		{"insert in the middle and remove", `{"l":["a","b","c","d"]}`, `{"l":["a","x","b","d"]}`, []string{`ADD /l/1  "x"`, `REMOVE /l/3 "c"`}},
		{"replace", `{"l":["a","b","c"]}`, `{"l":["a","x","c"]}`, []string{`REPLACE /l/1 "b" "x"`}},
		{"move", `{"l":["a","b","c"]}`, `{"l":["c","a","b"]}`, []string{`ADD /l/0  "c"`, `REMOVE /l/3 "c"`}},
		{"append", `{"l":[1]}`, `{"l":[1,2,3]}`, []string{"ADD /l/1  2", "ADD /l/2  3"}},
		{"empty", `{"l":[1,2]}`, `{"l":[]}`, []string{"REMOVE /l/0 1", "REMOVE /l/0 2"}},
		{"duplicates", `{"l":[1,1,1]}`, `{"l":[1,1]}`, []string{"REMOVE /l/2 1"}},
		{"object in a list", `{"l":[{"id":1,"n":"a"},{"id":2,"n":"b"}]}`, `{"l":[{"id":1,"n":"a"},{"id":2,"n":"c"}]}`, []string{`REPLACE /l/1/n "b" "c"`}},
		{
			"object inserted before one that changed", `{"l":[{"id":1,"n":"a","k":1}]}`, `{"l":[{"id":9,"n":"z","k":9},{"id":1,"n":"b","k":1}]}`,
			[]string{`ADD /l/0  {"id":9,"n":"z","k":9}`, `REPLACE /l/1/n "a" "b"`},
		},
		{"object with nothing in common", `{"l":[{"a":1}]}`, `{"l":[{"b":1}]}`, []string{`REPLACE /l/0 {"a":1} {"b":1}`}},
		{"member order in a list of objects", `{"l":[{"a":1,"b":2},{"c":1}]}`, `{"l":[{"c":1},{"b":2,"a":1}]}`, []string{`REMOVE /l/0 {"a":1,"b":2}`, `ADD /l/1  {"b":2,"a":1}`}},
		{"list in a list", `{"b":[[1,2],[3,4]]}`, `{"b":[[1,2],[3,5]]}`, []string{"REPLACE /b/1/1 4 5"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := slices.Collect(diff.Values("", []byte(tt.old), []byte(tt.now)))
			if d := cmp.Diff(tt.want, show(got)); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// patch writes changes as a JSON Patch.
func patch(t *testing.T, changes []diff.Change) []byte {
	t.Helper()
	ops := []map[string]any{}
	for _, c := range changes {
		op := map[string]any{"path": c.Path}
		switch c.Op {
		case diff.Add:
			op["op"], op["value"] = "add", json.RawMessage(c.New)
		case diff.Replace:
			op["op"], op["value"] = "replace", json.RawMessage(c.New)
		case diff.Remove:
			op["op"] = "remove"
		}
		ops = append(ops, op)
	}
	raw, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func checkApplies(t *testing.T, old, now []byte) []diff.Change {
	t.Helper()
	changes := slices.Collect(diff.Values("", old, now))
	p, err := jsonpatch.DecodePatch(patch(t, changes))
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Apply(old)
	if err != nil {
		t.Fatalf("%s\nto %s\n%v: %v", old, now, show(changes), err)
	}
	if got, err = normal.Object(got); err != nil || !normal.Equal(got, now) {
		t.Fatalf("%s\nto %s\nbecame %s, %v\n%v", old, now, got, err, show(changes))
	}
	if equal := normal.Equal(old, now); equal != (len(changes) == 0) {
		t.Fatalf("%s\nto %s: equal %v, changes %v", old, now, equal, show(changes))
	}
	return changes
}

func random(r *rand.Rand, depth int) any {
	switch n := r.IntN(10); {
	case n < 3 && depth > 0:
		m := map[string]any{}
		for range r.IntN(4) {
			m[[]string{"a", "b", "c", "d/e", "f~"}[r.IntN(5)]] = random(r, depth-1)
		}
		return m
	case n < 6 && depth > 0:
		l := []any{}
		for range r.IntN(7) {
			l = append(l, random(r, depth-1))
		}
		return l
	case n < 7:
		return nil
	case n < 8:
		return r.IntN(2) == 0
	case n < 9:
		return r.IntN(4)
	default:
		return []string{"x", "y", "é"}[r.IntN(3)]
	}
}

// mutate changes a part of a value, so that the two have something in common.
func mutate(r *rand.Rand, v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			switch r.IntN(6) {
			case 0:
			case 1:
				out[k] = mutate(r, e)
			default:
				out[k] = e
			}
		}
		return out
	case []any:
		out := []any{}
		for _, e := range x {
			switch r.IntN(8) {
			case 0:
			case 1:
				out = append(out, random(r, 2), e)
			case 2:
				out = append(out, mutate(r, e))
			default:
				out = append(out, e)
			}
		}
		if r.IntN(4) == 0 {
			r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		return out
	}
	return random(r, 1)
}

func TestChangesAreAPatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	write := func(v any) []byte {
		raw, err := json.Marshal(map[string]any{"v": v, "w": random(r, 3)})
		if err != nil {
			t.Fatal(err)
		}
		raw, err = normal.Object(raw)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for range 5000 {
		v := random(r, 5)
		w := mutate(r, v)
		if r.IntN(10) == 0 {
			w = random(r, 5)
		}
		checkApplies(t, write(v), write(w))
	}
}

func TestHostileSizes(t *testing.T) {
	list := func(n int, elem func(i int) string) []byte {
		var b strings.Builder
		b.WriteString(`{"l":[`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(elem(i))
		}
		b.WriteString(`]}`)
		return []byte(b.String())
	}
	const n = 20000
	tests := []struct {
		name     string
		old, now []byte
		apply    bool
	}{
		{"nothing in common", list(n, func(i int) string { return fmt.Sprint(i) }), list(n, func(i int) string { return fmt.Sprint(-1 - i) }), false},
		{"reversed", list(n, func(i int) string { return fmt.Sprint(i) }), list(n, func(i int) string { return fmt.Sprint(n - i) }), false},
		{"objects", list(3000, func(i int) string { return fmt.Sprintf(`{"a":%d,"b":1}`, i) }), list(3000, func(i int) string { return fmt.Sprintf(`{"b":1,"a":%d}`, 5000-i) }), true},
		{"every second", list(3000, func(i int) string { return fmt.Sprint(i) }), list(3000, func(i int) string { return fmt.Sprint(i * 2) }), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.apply {
				checkApplies(t, tt.old, tt.now)
			} else if len(slices.Collect(diff.Values("", tt.old, tt.now))) == 0 {
				t.Fatal("no changes")
			}
		})
	}
}

// To compare two lists of small elements takes little more memory than their elements' places.
func TestListsTakeLittleMemory(t *testing.T) {
	const n = diff.MaxElements
	random := rand.New(rand.NewPCG(1, 2))
	list := func() [][]byte {
		out := make([][]byte, n)
		for i := range out {
			out[i] = strconv.AppendInt(nil, int64(random.IntN(2)), 10)
		}
		return out
	}
	old, now := list(), list()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	edits := 0
	for range diff.Align(old, now) {
		edits++
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / (2 * n); edits < n || took > 40 {
		t.Errorf("%d edits, %d bytes for each element", edits, took)
	}
}

// Objects of which many are compared with many others are read once, and not for each pair.
func TestPairsAreReadOnce(t *testing.T) {
	const n, apart = 5000, 63
	list := func(from int) []byte {
		out := []byte{'['}
		for i := range n {
			if i%apart == 0 {
				out = fmt.Appendf(out, `"%d",`, i)
			}
			out = fmt.Appendf(out, `{"a":%d,"b":%d,"c":1},`, from+i, i)
		}
		return append(out, "0]"...)
	}
	old, now := list(0), list(n)
	changes := 0
	allocated := testing.AllocsPerRun(1, func() {
		changes = 0
		for range diff.Values("", old, now) {
			changes++
		}
	})
	if changes != n || allocated > 20*n {
		t.Errorf("%d changes, %v allocations", changes, allocated)
	}
}

// A very long list is compared as one value, however few elements it has.
func TestLongListsAreOneValue(t *testing.T) {
	for _, of := range []struct {
		size int
		one  bool
	}{{1, false}, {2 << 20, true}} {
		element := `{"a":"` + strings.Repeat("x", of.size/10) + `"`
		list := func(b int) []byte {
			each := fmt.Sprintf(`%s,"b":%d}`, element, b)
			return []byte("[" + strings.Repeat(each+",", 9) + each + fmt.Sprintf(",%d]", b))
		}
		if got := slices.Collect(diff.Values("/l", list(1), list(2))); (len(got) == 1) != of.one {
			t.Errorf("%d bytes: %d changes", of.size, len(got))
		}
	}
}

// Many small values below a long path must not repeat it each.
func TestPathsAreBounded(t *testing.T) {
	below := func(open, inside, end string, levels int) []byte {
		return []byte(strings.Repeat(open, levels) + inside + strings.Repeat(end, levels))
	}
	list := func(x string) string { return "[" + strings.Repeat(x+",", 2000) + x + "]" }
	long := `{"` + strings.Repeat("n", 1000) + `":`
	for name, tt := range map[string]struct{ old, now []byte }{
		"names": {below(long, list("1"), "}", 50), below(long, list("2"), "}", 50)},
		"depth": {below(`[0,{"a":`, list("1"), "}]", 240), below(`[0,{"a":`, list("2"), "}]", 240)},
	} {
		changes := slices.Collect(diff.Values("", tt.old, tt.now))
		paths := 0
		for _, c := range changes {
			paths += len(c.Path)
		}
		if len(changes) == 0 || paths > len(tt.old)+len(tt.now) {
			t.Errorf("%s: %d changes with %d bytes of paths, of %d bytes of values", name, len(changes), paths, len(tt.old))
		}
	}
	same := slices.Collect(diff.Values("", below(`{"a":`, `{"x":1,"y":2}`, "}", 100), below(`{"a":`, `{"y":2,"x":1}`, "}", 100)))
	if len(same) > 0 {
		t.Errorf("another order of members far down is a change: %v", show(same))
	}
}

func TestSplit(t *testing.T) {
	for path, want := range map[string][]string{"": nil, "/": {""}, "/a~1b/m~0n/0": {"a/b", "m~n", "0"}, "/~01": {"~1"}} {
		got, ok := diff.Split(path)
		if d := cmp.Diff(want, got); !ok || d != "" {
			t.Errorf("%q: %v %s", path, ok, d)
		}
	}
	for _, path := range []string{"a", "/~", "/~2"} {
		if _, ok := diff.Split(path); ok {
			t.Errorf("%q was accepted", path)
		}
	}
}

// Changes are found as they are asked for: who wants few pays for few.
func TestValuesEndsWithTheLastThatIsWanted(t *testing.T) {
	object := func(version int) []byte {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, `,"%d-%05d":{"a":%d}`, version, i, i)
		}
		return []byte("{" + b.String()[1:] + "}")
	}
	list := func(version int) []byte {
		return []byte(`[[` + strings.Repeat(fmt.Sprintf(`%d,`, version), 20_000) + `0]]`)
	}
	for name, value := range map[string]func(int) []byte{"object": object, "list": list} {
		old, now := value(1), value(2)
		all := slices.Collect(diff.Values("/v", old, now))
		n := 0
		for c := range diff.Values("/v", old, now) {
			if d := cmp.Diff(all[n], c); d != "" {
				t.Error(d)
			}
			if n++; n == 10 {
				break
			}
		}
		if n != 10 || len(all) < 20_000 {
			t.Errorf("%s: %d of %d", name, n, len(all))
		}
		few := testing.AllocsPerRun(2, func() {
			for range diff.Values("/v", old, now) {
				break
			}
		})
		if many := testing.AllocsPerRun(2, func() { _ = slices.Collect(diff.Values("/v", old, now)) }); few > many/10 {
			t.Errorf("%s: %v allocations for the first change, %v for all", name, few, many)
		}
	}
}
