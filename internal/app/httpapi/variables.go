package httpapi

import (
	"fmt"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// variableError puts into words what gqlparser says of a variable's value by a
// path ("variable", its name, and the way into it) and two or three words. It
// returns err where that is about something else.
func variableError(schema *ast.Schema, operation *ast.OperationDefinition, err *gqlerror.Error) *gqlerror.Error {
	if operation == nil || len(err.Path) < 2 || err.Path[0] != ast.PathName("variable") {
		return err
	}
	name, ok := err.Path[1].(ast.PathName)
	if !ok {
		return err
	}
	variable := operation.VariableDefinitions.ForName(string(name))
	if variable == nil {
		return err
	}
	way := err.Path[2:]
	typ, within := typeAt(schema, variable.Type, way)
	where := fmt.Sprintf("variable %q%s", "$"+string(name), asText(way))
	said := *err
	said.Path = nil // in an answer it would name a field of the data
	if variable.Position != nil {
		said.Locations = []gqlerror.Location{{Line: variable.Position.Line, Column: variable.Position.Column}}
	}
	switch {
	case err.Message == "unknown field" && within != nil:
		given := way[len(way)-1]
		said.Message = fmt.Sprintf("%s: %s has no field %q", where, within.Name, given)
		names := make([]string, 0, len(within.Fields))
		for _, field := range within.Fields {
			names = append(names, field.Name)
		}
		if near := core.SuggestionList(fmt.Sprint(given), names); len(near) > 0 {
			said.Message += "; did you mean " + core.QuotedOrList(near...) + "?"
		}
	case err.Message == "must be defined" && typ != nil:
		said.Message = fmt.Sprintf("%s of type %q was not provided", where, typ)
	case err.Message == "cannot be null" && typ != nil:
		said.Message = fmt.Sprintf("%s of type %q cannot be null", where, typ)
	default:
		said.Message = where + ": " + err.Message
	}
	return &said
}

// typeAt is the type of what a way into a value leads to, and the input type
// that has its last step as a field; nil where there is none.
func typeAt(schema *ast.Schema, typ *ast.Type, way ast.Path) (at *ast.Type, within *ast.Definition) {
	for _, step := range way {
		within = nil
		if typ == nil {
			return nil, nil
		}
		field, ok := step.(ast.PathName)
		if !ok {
			typ = typ.Elem
			continue
		}
		within = schema.Types[typ.Name()]
		if within == nil {
			return nil, nil
		}
		typ = nil
		if def := within.Fields.ForName(string(field)); def != nil {
			typ = def.Type
		}
	}
	return typ, within
}

// asText writes a way as it would be written in a program: .where.tags[0].
func asText(way ast.Path) string {
	var text strings.Builder
	for _, step := range way {
		if index, ok := step.(ast.PathIndex); ok {
			fmt.Fprintf(&text, "[%d]", int(index))
		} else {
			fmt.Fprintf(&text, ".%s", step)
		}
	}
	return text.String()
}
