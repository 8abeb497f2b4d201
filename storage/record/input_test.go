package record

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/asof/asof/storage/normal"
)

// What a patch makes of a document in normal form is in normal form, and what it says that
// it changes are the members that differ.
func TestPatchIsNormal(t *testing.T) {
	inner := &ObjectType{Name: "Inner", Fields: []Field{
		{Name: "text", Kind: KindString}, {Name: "n", Stored: "number", Kind: KindInt}, {Name: "any", Kind: KindJSON},
	}}
	typ := &Type{Name: "T", Collection: "t", Fields: []Field{
		{Name: "text", Kind: KindString, NonNull: true},
		{Name: "x", Kind: KindFloat, Default: json.RawMessage("1.50")},
		{Name: "quoted\"", Stored: "quo\"ted", Kind: KindString},
		{Name: "list", Kind: KindString, List: true, NonNull: true},
		{Name: "any", Kind: KindJSON},
		{Name: "one", Kind: KindObject, Object: inner},
		{Name: "many", Kind: KindObject, Object: inner, List: true},
		{Name: "price", Kind: KindDecimal},
	}}
	Prepare([]*Type{typ})
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...any) any { return values[r.IntN(len(values))] }
	object := func() any {
		return pick(nil, map[string]any{}, map[string]any{"n": r.IntN(2)}, map[string]any{"text": "a", "any": json.RawMessage(`{"b": 1.0, "a": [1e3]}`)})
	}
	values := map[string]func() any{
		"text":     func() any { return pick("", "a", "ü\n") },
		"x":        func() any { return pick(nil, 1.5, 2.0, 1e300) },
		"quoted\"": func() any { return pick(nil, "\"") },
		"list":     func() any { return pick([]any{}, []any{"a"}, "a") },
		"any": func() any {
			return pick(nil, json.RawMessage(`{"a": 1.50, "b": -0}`), json.RawMessage(`{"b":0,"a":1.5}`), json.RawMessage(` [ ] `))
		},
		"one":   object,
		"many":  func() any { return pick(nil, []any{}, []any{object()}) },
		"price": func() any { return pick(nil, "1.50", "1.5") },
	}
	stored := []string{
		`{}`, `{"text":"a","x":1.5,"other":[1,2],"list":null}`, `{"one":{"more":1,"number":1,"text":null},"text":"a","any":{"b":0,"a":1.5}}`,
		`{"quo\"ted":"\"","many":[{"number":1,"more":2}],"price":1.50,"text":5,"one":[]}`,
	}
	made := 0
	for i := range 20_000 {
		var doc []byte
		if n := r.IntN(len(stored) + 1); n < len(stored) {
			doc, _ = normal.Object([]byte(stored[n]))
		}
		patch := map[string]any{}
		for name, value := range values {
			if r.IntN(3) == 0 {
				patch[name] = value()
			}
		}
		out, changed, err := Patch(typ.Object, doc, patch, "input")
		if err != nil {
			continue
		}
		made++
		is, err := normal.Object(out)
		if err != nil || string(is) != string(out) {
			t.Fatalf("%d: %s by %v: %s, in normal form %s (%v)", i, doc, patch, out, is, err)
		}
		if want := normal.Changed(doc, out); !slices.Equal(changed, want) {
			t.Fatalf("%d: %s by %v: %s changes %v, want %v", i, doc, patch, out, changed, want)
		}
	}
	if made < 10_000 {
		t.Errorf("only %d patches fit", made)
	}
}
