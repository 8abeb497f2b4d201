package httpapi

import (
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// checkNoIntrospection refuses an operation that asks for the schema, on a server that
// is not to tell it. gqlgen by itself has an error for the field that does not say
// why. __typename is no such question: clients need it for every object.
func checkNoIntrospection(op *ast.OperationDefinition) *gqlerror.Error {
	field := schemaField(op.SelectionSet, map[*ast.FragmentDefinition]bool{})
	if field == nil {
		return nil
	}
	err := refuse(CodeForbidden, "introspection is turned off on this server (--no-introspection): it does not answer %s", field.Name)
	err.Locations = []gqlerror.Location{{Line: field.Position.Line, Column: field.Position.Column}}
	return err
}

// schemaField finds what asks for the schema at the root of an operation; nil:
// nothing does. Each fragment is looked at once.
func schemaField(set ast.SelectionSet, seen map[*ast.FragmentDefinition]bool) (found *ast.Field) {
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			if s.Name == "__schema" || s.Name == "__type" {
				return s
			}
		case *ast.InlineFragment:
			found = schemaField(s.SelectionSet, seen)
		case *ast.FragmentSpread:
			if !seen[s.Definition] {
				seen[s.Definition] = true
				found = schemaField(s.Definition.SelectionSet, seen)
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}
