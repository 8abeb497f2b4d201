package plan

import (
	"strconv"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

// The cache keeps what was used last, and never more than its bounds.
func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	operation := func(size int) *graphql.OperationContext {
		return &graphql.OperationContext{Operation: &ast.OperationDefinition{Operation: ast.Query}, RawQuery: strings.Repeat("x", size)}
	}
	first := operation(10)
	kept := c.of(first)
	for range cachedOperations + 10 {
		c.of(operation(10))
		if c.of(first) != kept {
			t.Fatal("what is used all the time was forgotten")
		}
	}
	if n := c.entries.Len(); n > cachedOperations {
		t.Errorf("%d operations", n)
	}
	for range 30 {
		c.of(operation(cachedBytes / documentFactor / 10))
	}
	if c.size > cachedBytes || c.entries.Len() > 10 {
		t.Errorf("%d bytes of %d operations", c.size, c.entries.Len())
	}
	before := c.entries.Len()
	if c.of(operation(cachedEntry/documentFactor+1)) == nil || c.entries.Len() != before {
		t.Error("a large operation was kept")
	}
}

// A plan is kept for what it takes, whatever the length of its document, and a
// plan that was compiled meanwhile is not counted for an operation that is gone.
func TestPlansAreBounded(t *testing.T) {
	c := newCache()
	operation := func() *graphql.OperationContext {
		return &graphql.OperationContext{Operation: &ast.OperationDefinition{Operation: ast.Query}, RawQuery: "{}"}
	}
	large := &plan{fields: mostFields}
	for range 100 {
		oc := operation()
		k := c.of(oc)
		for _, values := range []string{"00", "01", "10", "11"} {
			c.keep(oc.Operation, k, values, large)
		}
		if len(k.variants) == 0 || k.size > cachedEntry || c.size > cachedBytes {
			t.Fatalf("%d variants, %d bytes, %d bytes in all", len(k.variants), k.size, c.size)
		}
	}
	sum, fields := 0, 0
	for _, k := range c.entries.Values() {
		sum += k.size
		fields += len(k.variants) * large.fields
	}
	if fields*fieldBytes > cachedBytes {
		t.Errorf("%d fields are kept", fields)
	}
	gone := operation()
	k := c.of(gone)
	c.entries.Remove(gone.Operation)
	c.keep(gone.Operation, k, "", large)
	if c.size != sum || len(k.variants) > 0 {
		t.Errorf("%d bytes are counted for entries of %d", c.size, sum)
	}
	oc := operation()
	k = c.of(oc)
	for i := range 3 * cachedVariants {
		c.keep(oc.Operation, k, strconv.Itoa(i), &plan{})
	}
	if len(k.variants) != cachedVariants {
		t.Errorf("%d variants", len(k.variants))
	}
}

// Nobody waits while a plan is compiled.
func TestCompilingHoldsNothing(t *testing.T) {
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: "type Query { a: Int b: Int }"})
	doc, err := parser.ParseQuery(&ast.Source{Input: "query ($c: Boolean!) { a @skip(if: $c) b }"})
	if err != nil {
		t.Fatal(err)
	}
	plans, compiled := newCache(), 0
	kind := func(*planning, graphql.CollectedField) rootField {
		compiled++
		if !plans.mu.TryLock() {
			t.Fatal("the cache is locked")
		}
		plans.mu.Unlock()
		return func(*run, *place) bool { return true }
	}
	c := &compiler{schema: schema, roots: map[string]rootKind{"a": kind, "b": kind}}
	for range 3 {
		for _, on := range []bool{true, false} {
			oc := &graphql.OperationContext{Doc: doc, Operation: doc.Operations[0], Variables: map[string]any{"c": on}}
			if p := plans.plan(plans.of(oc), c, oc); p.err != nil {
				t.Fatal(p.err)
			}
		}
	}
	if compiled != 3 {
		t.Errorf("%d fields were compiled, not those of two plans", compiled)
	}
}
