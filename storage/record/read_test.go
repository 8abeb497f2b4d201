package record

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A document of which many members have another form is made anew once, not for each of them: it may
// be large.
func TestTodayIsMadeOnce(t *testing.T) {
	const members, size = 20, 50 << 10
	typ := &Type{Name: "T", Collection: "t"}
	var was, is []string
	for i := range members {
		f := Field{Name: fmt.Sprintf("f%d", i), Kind: KindString, List: true}
		f.Was.Single = true
		typ.Fields = append(typ.Fields, f)
		text := `"` + strings.Repeat("x", size) + `"`
		was, is = append(was, fmt.Sprintf(`"f%d":%s`, i, text)), append(is, fmt.Sprintf(`"f%d":[%s]`, i, text))
	}
	Prepare([]*Type{typ})
	raw := []byte("{" + strings.Join(was, ",") + "}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := typ.Object.Today(raw)
	runtime.ReadMemStats(&after)
	if want := "{" + strings.Join(is, ",") + "}"; string(got) != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 4*uint64(len(raw)) {
		t.Errorf("%d bytes were allocated for a document of %d", made, len(raw))
	}
}

// What is advised for values that do not fit a field is what holds them.
func TestAdvice(t *testing.T) {
	for raw, want := range map[string]string{
		`"25.00"`:                "declare f: Decimal, or String, or JSON, or correct the document",
		`"2024-03-01"`:           "declare f: Date, or String, or JSON, or correct the document",
		`"2024-03-01T12:30:00Z"`: "declare f: DateTime, or String, or JSON, or correct the document",
		`"2024-13-01"`:           "declare f: String, or JSON, or correct the document",
		`["1.5","2024-03-01"]`:   "declare f: [String], or JSON, or correct the document",
		`["1.5",null,"2"]`:       "declare f: [Decimal], or [String], or JSON, or correct the document",
		`["1.5",true]`:           "declare f: [JSON], or JSON, or correct the document",
		`1.5`:                    "declare it JSON, or correct the document",
	} {
		if got := Advice(&Field{Name: "f", Kind: KindFloat}, []byte(raw)); got != want {
			t.Errorf("%s: %s", raw, got)
		}
	}
}

// What hides nothing is shown without a copy.
func TestVisibleValuesAreNotCopied(t *testing.T) {
	link := &ObjectType{Name: "Link", Fields: []Field{{Name: "title", Kind: KindString}, {Name: "of", Stored: "about", Kind: KindString}}}
	doc := &Type{Name: "Tag", Collection: "tags", Fields: []Field{{Name: "links", Kind: KindObject, Object: link, List: true}}}
	Prepare([]*Type{doc})
	for _, c := range []struct {
		stored, shown string
		copied        bool
	}{
		{`[{"title":"a"},{"title":"b"}]`, `[{"title":"a"},{"title":"b"}]`, false},
		{`[{"title":"a"},null,7]`, `[{"title":"a"},null,7]`, false},
		{`[{"title":"a"},{"title":"b","more":1}]`, `[{"title":"a"},{"title":"b"}]`, true},
		{`[{"about":"a"}]`, `[{"of":"a"}]`, true},
		{`[{"of":"a"}]`, `[{}]`, true},
	} {
		stored := []byte(c.stored)
		shown := doc.Object.Fields[0].Visible(stored)
		if copied := &shown[0] != &stored[0]; string(shown) != c.shown || copied != c.copied {
			t.Errorf("%s: %s, copied: %t", c.stored, shown, copied)
		}
	}
}
