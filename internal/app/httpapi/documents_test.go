package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
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
	exec := newExecutor(&Config{Schema: s, Introspection: true, Limits: DefaultLimits()}, presentPlainly)
	allocations := func(document string) float64 {
		return testing.AllocsPerRun(1, func() {
			_, errs := exec.CreateOperationContext(graphql.StartOperationTrace(t.Context()), &graphql.RawParams{Query: document})
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
