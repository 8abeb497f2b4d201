package httpapi

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// conditions refuses operations whose @skip or @include has a variable that is
// null: a document may use one that is nullable and has a default, which null
// replaces. gqlgen panics there.
type conditions struct{}

var _ interface {
	graphql.HandlerExtension
	graphql.OperationContextMutator
} = conditions{}

func (conditions) ExtensionName() string { return "Conditions" }

func (conditions) Validate(graphql.ExecutableSchema) error { return nil }

func (conditions) MutateOperationContext(_ context.Context, op *graphql.OperationContext) *gqlerror.Error {
	for _, v := range op.Operation.VariableDefinitions {
		value, given := op.Variables[v.Variable]
		if !given || value != nil || v.Type.Name() != "Boolean" {
			continue
		}
		if c := conditionOn(v.Variable, op.Operation.SelectionSet, map[*ast.FragmentDefinition]bool{}); c != nil {
			err := refuse(CodeBadInput, "variable %q cannot be null: it is a condition of @%s", "$"+v.Variable, c.Name)
			err.Locations = []gqlerror.Location{{Line: c.Position.Line, Column: c.Position.Column}}
			return err
		}
	}
	return nil
}

// conditionOn finds a @skip or @include that depends on a variable; nil: none
// does. Each fragment is looked at once.
func conditionOn(variable string, set ast.SelectionSet, seen map[*ast.FragmentDefinition]bool) *ast.Directive {
	for _, selection := range set {
		var directives ast.DirectiveList
		var inner ast.SelectionSet
		switch s := selection.(type) {
		case *ast.Field:
			directives, inner = s.Directives, s.SelectionSet
		case *ast.InlineFragment:
			directives, inner = s.Directives, s.SelectionSet
		case *ast.FragmentSpread:
			directives = s.Directives
			if !seen[s.Definition] {
				seen[s.Definition] = true
				inner = s.Definition.SelectionSet
			}
		}
		for _, d := range directives {
			if a := d.Arguments.ForName("if"); a != nil && a.Value.Kind == ast.Variable && a.Value.Raw == variable &&
				(d.Name == "skip" || d.Name == "include") {
				return d
			}
		}
		if found := conditionOn(variable, inner, seen); found != nil {
			return found
		}
	}
	return nil
}
