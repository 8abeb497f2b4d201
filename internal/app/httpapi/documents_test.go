package httpapi

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// conflicts is a document with so many fields of one response name, each with
// arguments of its own, in so many inline fragments within each other.
func conflicts(fields, fragments int) string {
	var b strings.Builder
	b.WriteString("{" + strings.Repeat("...{", fragments))
	for i := range fields {
		fmt.Fprintf(&b, `hello(name:"%d")`, i)
	}
	return b.String() + strings.Repeat("}", fragments+1)
}

// What it takes to refuse fields that conflict grows with their number, not with that
// of their pairs, nor with the fragments around them.
func TestConflictsCostWhatTheyAreLong(t *testing.T) {
	s := newFakeSchema(t)
	exec := newExecutor(&Config{Schema: s, Introspection: true, Limits: defaultLimits()}, presentPlainly)
	allocations := func(document string) float64 {
		return testing.AllocsPerRun(1, func() {
			_, errs := exec.read(t.Context(), new(operation), &graphql.RawParams{Query: document})
			if !strings.Contains(errs.Error(), `Fields "hello" conflict because they have differing arguments`) {
				t.Fatalf("%.300v", errs)
			}
		})
	}
	one, twice, nested := allocations(conflicts(50, 5)), allocations(conflicts(100, 5)), allocations(conflicts(50, 30))
	if twice > 3*one || nested > 3*one {
		t.Errorf("%.0f allocations; for twice the fields %.0f, for more fragments %.0f", one, twice, nested)
	}
}

// A document that is not valid is not kept, by its text or its hash, and evicts none
// that is.
func TestInvalidDocumentsAreNotKept(t *testing.T) {
	s := newServer(t, nil)
	send := func(query string, hash string) answer {
		return s.post(t, fmt.Sprintf(`{"query":%q,"extensions":{"persistedQuery":{"version":1,"sha256Hash":%q}}}`, query, hash))
	}
	const valid = `{hello}`
	send(valid, sha256Hex(valid)).want(t, 200, ok)
	for i := range persistedCount + 10 {
		for _, invalid := range []string{fmt.Sprintf(`{hello%d}`, i), fmt.Sprintf(`{hello # %d`, i)} {
			if a := send(invalid, sha256Hex(invalid)); !strings.Contains(a.text, codeBadInput) {
				t.Fatal(a.text)
			}
		}
	}
	send("", sha256Hex(`{hello1}`)).wantError(t, 400, codeNotPersisted, "")
	send("", sha256Hex(valid)).want(t, 200, ok)
	documents := s.handler.exec.documents
	if n, m := documents.known.entries.Len(), documents.persisted.entries.Len(); n != 1 || m != 1 {
		t.Errorf("%d documents are kept, and %d by their hash", n, m)
	}
}

// The cache of documents counts what they take, whatever they are made of.
func TestDocumentsTakeWhatIsCounted(t *testing.T) {
	schema := worstSchema(t)
	limits := defaultLimits()
	d := newDocuments(&Config{Schema: schema, Limits: limits, Introspection: true})
	for name, text := range map[string]string{
		"fields":    `{` + strings.Repeat("id ", 990) + `}`,
		"values":    `{list(of: [` + strings.Repeat("1 ", 9_900) + `])}`,
		"objects":   `{find(by: {and: [` + strings.Repeat("{} ", 4_900) + `]}) {id}}`,
		"keys":      `{any(of: {` + repeat(3_000, "k%d:1 ") + `})}`,
		"arguments": `{` + strings.Repeat("node(id:1){id}", 490) + `}`,
		"variables": `query(` + repeat(1_600, "$v%d:Int ") + `) {list(of: [` + repeat(1_600, "$v%d ") + `])}`,
		"comments":  `{id` + strings.Repeat("#\n", 9_900) + `}`,
		"fragments": `{...F0}` + chain(300, "F", "Query", func(i int) string { return fmt.Sprintf("...F%d", i+1) }),
		"a text":    `{hello(name: "` + strings.Repeat("x", 90_000) + `")}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		doc, list := d.read(t.Context(), text)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if list != nil {
			t.Fatalf("%s: %v", name, list)
		}
		d.known.Add(text, doc)
		counted := d.known.size(text, doc)
		if held := int(after.HeapAlloc) - int(before.HeapAlloc); held > counted {
			t.Errorf("%s: %d tokens take %d bytes, and count as %d", name, doc.tokens, held, counted)
		} else {
			t.Logf("%s: %d tokens take %d bytes, and count as %d", name, doc.tokens, held, counted)
		}
	}
}

// The check of a document ends with the time of its operation, and what it found before
// is not lost when its steps are used up.
func TestCheckingEnds(t *testing.T) {
	schema := worstSchema(t)
	limits := defaultLimits()
	v := newValidation(schema.schema, &limits)
	check := func(ctx context.Context, text string) gqlerror.List {
		doc, _, _, err := parse(text, limits.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		return v.check(ctx, doc, true)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expensive := worst["fragments that spread the next"](64 << 10)
	if list := check(t.Context(), expensive); len(list) != 1 || codeOf(list[0]) != codeTooComplex || !strings.Contains(list[0].Message, "takes more steps") {
		t.Errorf("%v", list)
	}
	if list := check(ended, expensive); len(list) != 1 || codeOf(list[0]) != CodeUnavailable {
		t.Errorf("%v", list)
	}
	if list := check(t.Context(), strings.Replace(expensive, "{...F0}", "{...F0 nothing}", 1)); len(list) != 1 || !strings.Contains(list[0].Message, `Cannot query field "nothing"`) {
		t.Errorf("%v", list)
	}
	if list := check(t.Context(), worst["fields unknown"](64<<10)); len(list) != mostInvalid {
		t.Errorf("%d errors", len(list))
	}
	var seconds atomic.Int64
	late := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Now = func() time.Time { return time.Unix(seconds.Add(1), 0) } // whenever it is looked at
		cfg.Limits.Time = 50 * time.Second
	})
	late.query(t, `{hello}`).want(t, 200, ok)
	late.query(t, expensive).wantError(t, 504, CodeUnavailable, "the request took longer than this server allows")
	func() {
		defer func() {
			if recover() != any("a rule fails") {
				t.Error("another panic than the budget's is hidden")
			}
		}()
		new(budget).run(func() { panic("a rule fails") })
	}()
}
