package plan

import (
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
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
		c.of(operation(cachedText / 10))
	}
	if c.text > cachedText || c.entries.Len() > 10 {
		t.Errorf("%d bytes of %d operations", c.text, c.entries.Len())
	}
	before := c.entries.Len()
	if c.of(operation(cachedText/8+1)) == nil || c.entries.Len() != before {
		t.Error("a large operation was kept")
	}
}
