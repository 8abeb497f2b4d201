package plan

import (
	"context"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

// known is a schema for operations of one field.
type known struct{ graphql.ExecutableSchema }

func (known) Schema() *ast.Schema {
	return gqlparser.MustLoadSchema(&ast.Source{Input: `type Query { a: Int }`})
}

func operation(t *testing.T, text string, variables map[string]any) *graphql.OperationContext {
	t.Helper()
	doc, err := parser.ParseQuery(&ast.Source{Input: text})
	if err != nil {
		t.Fatal(err)
	}
	return &graphql.OperationContext{Doc: doc, Operation: doc.Operations[0], Variables: variables}
}

// The plans that were used last are kept, and never more than there is room for.
func TestPlansAreBounded(t *testing.T) {
	size := 10
	e, _ := New(known{}, nil, Config{Document: func(context.Context) int { return size }}).(*executable)
	first := operation(t, `{ __typename }`, nil)
	kept := e.planOf(t.Context(), first)
	for range 1_000 {
		e.planOf(t.Context(), operation(t, `{ __typename }`, nil))
		if e.planOf(t.Context(), first) != kept {
			t.Fatal("what is used all the time was forgotten")
		}
	}
	size = keptBytes / 10
	for range 30 {
		e.planOf(t.Context(), operation(t, `{ __typename }`, nil))
	}
	if e.plans.Bytes() > keptBytes || e.plans.Len() > 10 {
		t.Errorf("%d bytes of %d plans", e.plans.Bytes(), e.plans.Len())
	}
	before := e.plans.Len()
	size = keptEntry
	if e.planOf(t.Context(), operation(t, `{ __typename }`, nil)) == nil || e.plans.Len() != before {
		t.Error("a large plan was kept")
	}
	e, _ = New(known{}, nil, e.Config).(*executable)
	size = 0
	e.planOf(t.Context(), operation(t, `{ `+strings.Repeat("a: __typename ... on Query { b: __typename }", 2)+` c: __typename }`, nil))
	if least := 4 * fieldBytes; e.plans.Bytes() < least {
		t.Errorf("%d bytes of a plan of three fields", e.plans.Bytes())
	}
}

// There is a plan for each value of a condition, and none where that is null.
func TestConditions(t *testing.T) {
	e, _ := New(known{}, nil, Config{Document: func(context.Context) int { return 0 }}).(*executable)
	oc := operation(t, `query ($c: Boolean) { a: __typename @skip(if: $c) }`, nil)
	plans := map[*plan]bool{}
	for range 3 {
		for value, fields := range map[any]int{true: 0, false: 1} {
			oc.Variables = map[string]any{"c": value}
			p := e.planOf(t.Context(), oc)
			if plans[p] = true; p.err != nil || len(p.root.fields) != fields {
				t.Errorf("%v: %v, %d fields", value, p.err, len(p.root.fields))
			}
		}
	}
	if len(plans) != 2 {
		t.Errorf("%d plans", len(plans))
	}
	oc.Variables = nil
	if p := e.planOf(t.Context(), oc); p.err == nil {
		t.Error("there is a plan for a condition that is null")
	}
}
