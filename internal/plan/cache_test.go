package plan

import (
	"strconv"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

func operation(size int) *graphql.OperationContext {
	return &graphql.OperationContext{Operation: &ast.OperationDefinition{Operation: ast.Query}, RawQuery: strings.Repeat("x", size)}
}

func made(*graphql.OperationContext) (string, int) { return "made", 1 }

// The cache keeps what was used last, and never more than its bounds.
func TestCacheIsBounded(t *testing.T) {
	c := newCache(made)
	first := operation(10)
	kept := c.known(first)
	for range 1_000 {
		c.known(operation(10))
		if c.known(first) != kept {
			t.Fatal("what is used all the time was forgotten")
		}
	}
	for range 30 {
		c.known(operation(cachedBytes / 10))
	}
	if c.entries.Bytes() > cachedBytes || c.entries.Len() > 10 {
		t.Errorf("%d bytes of %d operations", c.entries.Bytes(), c.entries.Len())
	}
	before := c.entries.Len()
	if c.known(operation(cachedEntry+1)) == nil || c.entries.Len() != before {
		t.Error("a large operation was kept")
	}
}

// What was made is kept for what it takes, whatever the length of its document,
// and not counted for an operation that is gone meanwhile.
func TestPlansAreBounded(t *testing.T) {
	const manyFields = 10_000
	c := newCache(made)
	var all []*known[string]
	for range 100 {
		oc := operation(2)
		k := c.known(oc)
		all = append(all, k)
		for _, values := range []string{"00", "01", "10", "11"} {
			c.keep(oc.Operation, k, values, "large", manyFields)
		}
		if len(k.variants) == 0 || k.size > cachedEntry || c.entries.Bytes() > cachedBytes {
			t.Fatalf("%d variants, %d bytes, %d bytes in all", len(k.variants), k.size, c.entries.Bytes())
		}
	}
	fields := 0
	for _, k := range all[len(all)-c.entries.Len():] { // the last ones are kept
		fields += len(k.variants) * manyFields
	}
	if fields == 0 || fields*fieldBytes > cachedBytes {
		t.Errorf("%d fields are kept", fields)
	}
	gone := operation(2)
	k := c.known(gone)
	c.entries.Remove(gone.Operation)
	before := c.entries.Bytes()
	c.keep(gone.Operation, k, "", "large", manyFields)
	if c.entries.Bytes() != before || len(k.variants) > 0 {
		t.Errorf("%d bytes are counted for what is gone", c.entries.Bytes()-before)
	}
	oc := operation(2)
	k = c.known(oc)
	for i := range 3 * cachedVariants {
		c.keep(oc.Operation, k, strconv.Itoa(i), "small", 0)
	}
	if len(k.variants) != cachedVariants {
		t.Errorf("%d variants", len(k.variants))
	}
}

// For each value of a condition something is made once, and nobody waits for it.
func TestMakingHoldsNothing(t *testing.T) {
	doc, err := parser.ParseQuery(&ast.Source{Input: "query ($c: Boolean!) { a @skip(if: $c) ...F } fragment F on Query { b @include(if: $c) }"})
	if err != nil {
		t.Fatal(err)
	}
	doc.Operations[0].SelectionSet[1].(*ast.FragmentSpread).Definition = doc.Fragments[0] // as validation does
	var c *planCache[bool]
	calls := 0
	c = newCache(func(oc *graphql.OperationContext) (bool, int) {
		calls++
		if !c.mu.TryLock() {
			t.Fatal("the cache is locked")
		}
		c.mu.Unlock()
		return oc.Variables["c"].(bool), 1
	})
	for range 3 {
		for _, on := range []bool{true, false} {
			oc := &graphql.OperationContext{Doc: doc, Operation: doc.Operations[0], Variables: map[string]any{"c": on}}
			if got, err := c.of(oc); err != nil || got != on {
				t.Fatal(got, err)
			}
		}
	}
	if calls != 2 {
		t.Errorf("made %d times, not once for each value", calls)
	}
}

// What nothing can be made for is said, and nothing is tried.
func TestNothingIsMade(t *testing.T) {
	for query, want := range map[string]string{
		"query ($c: Boolean) { a @skip(if: $c) }": "the variable $c of a condition is not a boolean",
		"{ a { ... @other { b } } }":              "the directive @other is not planned",
		"query @other { a }":                      "the directive @other is not planned",
	} {
		doc, err := parser.ParseQuery(&ast.Source{Input: query})
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(func(*graphql.OperationContext) (int, int) { t.Error("made: " + query); return 0, 0 })
		if _, err := c.of(&graphql.OperationContext{Doc: doc, Operation: doc.Operations[0]}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// What a document has beside fields is counted too.
func TestValuesAreCounted(t *testing.T) {
	const values = 5_000
	doc, err := parser.ParseQuery(&ast.Source{Input: "{ a(b: [" + strings.Repeat("1 ", values) + "]) @skip(if: false) ...F } fragment F on Query { a(b: [" + strings.Repeat("1 ", values) + "]) }"})
	if err != nil {
		t.Fatal(err)
	}
	doc.Operations[0].SelectionSet[1].(*ast.FragmentSpread).Definition = doc.Fragments[0] // as validation does
	if size := examine(doc.Operations[0]).size; size < 2*values*nodeBytes || size > 2*(values+10)*nodeBytes {
		t.Errorf("%d bytes", size)
	}
}
