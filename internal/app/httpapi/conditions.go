package httpapi

import (
	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// checkConditions refuses an operation whose @skip or @include has a variable that is
// null: a document may use one that is nullable and has a default, which null
// replaces. gqlgen panics there.
func checkConditions(oc *graphql.OperationContext) *gqlerror.Error {
	nulls := map[string]bool{}
	for _, v := range oc.Operation.VariableDefinitions {
		if value, given := oc.Variables[v.Variable]; given && value == nil && v.Type.Name() == "Boolean" {
			nulls[v.Variable] = true
		}
	}
	if len(nulls) == 0 {
		return nil
	}
	found, variable := conditionOn(nulls, oc.Operation.SelectionSet, map[*ast.FragmentDefinition]bool{})
	if found == nil {
		return nil
	}
	err := refuse(CodeBadInput, "variable %q cannot be null: it is a condition of @%s", "$"+variable, found.Name)
	err.Locations = []gqlerror.Location{{Line: found.Position.Line, Column: found.Position.Column}}
	return err
}

// conditionOn finds a @skip or @include that depends on one of some variables, and
// which; nil: none does. Each fragment is looked at once.
func conditionOn(variables map[string]bool, set ast.SelectionSet, seen map[*ast.FragmentDefinition]bool) (*ast.Directive, string) {
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
			if a := d.Arguments.ForName("if"); a != nil && a.Value.Kind == ast.Variable && variables[a.Value.Raw] &&
				(d.Name == "skip" || d.Name == "include") {
				return d, a.Value.Raw
			}
		}
		if found, variable := conditionOn(variables, inner, seen); found != nil {
			return found, variable
		}
	}
	return nil, ""
}
