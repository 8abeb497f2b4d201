package app

import (
	"bytes"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/vektah/gqlparser/v2/ast"
)

// pinned reports whether an answer's data stays as it is, whatever is written later: each root
// field names an instant, or a version. What is not certain to stay counts as what does not.
func pinned(oc *graphql.OperationContext, data []byte) bool {
	byInstant, byNumber := 0, 0
	for _, field := range graphql.CollectFields(oc, oc.Operation.SelectionSet, []string{"Query"}) {
		given := func(name string) bool {
			argument := field.Arguments.ForName(name)
			if argument == nil {
				return false
			}
			value, err := argument.Value.Value(oc.Variables)
			return err == nil && value != nil
		}
		switch {
		case given("asOf"):
			byInstant++
		case given("version"):
			byNumber++
		case field.Name != "__typename":
			return false
		}
	}
	return byInstant+byNumber > 0 && !selects(oc.Doc, isReplaced) && (byNumber == 0 || !selects(oc.Doc, tellsLater) && !hasNull(data))
}

// isReplaced reports whether a field has no versions: the name of an actor.
func isReplaced(field *ast.Field) bool {
	return field.Name == "name" && field.ObjectDefinition.Name == "Actor"
}

// tellsLater reports whether a field shows, of a version that is read by its number, what was
// written after it.
func tellsLater(field *ast.Field) bool {
	result := field.Definition.Type.Name()
	return field.Name == "supersededAt" || field.Name == "isCurrent" ||
		strings.HasSuffix(result, "VersionConnection") || result == "FieldChangeConnection" || result == "DocumentDiff"
}

// selects reports whether a field of a document, in any of its operations, is such a one.
func selects(doc *ast.QueryDocument, such func(*ast.Field) bool) bool {
	var in func(list ast.SelectionSet) bool
	in = func(list ast.SelectionSet) bool {
		return slices.ContainsFunc(list, func(selected ast.Selection) bool {
			switch selected := selected.(type) {
			case *ast.InlineFragment:
				return in(selected.SelectionSet)
			case *ast.Field:
				return such(selected) || in(selected.SelectionSet)
			default: // fragments are looked at once
				return false
			}
		})
	}
	return slices.ContainsFunc(doc.Operations, func(o *ast.OperationDefinition) bool { return in(o.SelectionSet) }) ||
		slices.ContainsFunc(doc.Fragments, func(f *ast.FragmentDefinition) bool { return in(f.SelectionSet) })
}

// hasNull reports whether a root field is null: a version of a document that there is not yet.
func hasNull(data []byte) bool {
	from := jsontext.NewDecoder(bytes.NewReader(data))
	if _, err := from.ReadToken(); err != nil { // the object's beginning
		return true
	}
	for from.PeekKind() == '"' {
		if from.SkipValue() != nil || from.PeekKind() == 'n' || from.SkipValue() != nil {
			return true
		}
	}
	return false
}
