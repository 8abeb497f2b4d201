package httpapi

import (
	"fmt"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// variableError adds the place to gqlparser's error about a variable's value, which has it as a
// path ("variable", its name, and the way into it). It leaves out what that says of the value: Go's
// kinds, of which numbers are strings here. It returns err where that is about something else.
func variableError(operation *ast.OperationDefinition, err *gqlerror.Error) *gqlerror.Error {
	if len(err.Path) < 2 {
		return err
	}
	name := fmt.Sprint(err.Path[1])
	variable := operation.VariableDefinitions.ForName(name)
	if variable == nil {
		return err
	}
	wrong := err.Message
	if _, typ, ok := strings.Cut(wrong, " as "); ok && strings.HasPrefix(wrong, "cannot use ") {
		wrong = "this is not a valid " + typ
	} else if rest, ok := strings.CutPrefix(wrong, "must be a "); ok {
		typ, _, _ := strings.Cut(rest, ",")
		wrong = "this is not a valid " + typ
	}
	said := *err
	said.Path = nil // in an answer it would name a field of the data
	said.Locations = []gqlerror.Location{{Line: variable.Position.Line, Column: variable.Position.Column}}
	said.Message = fmt.Sprintf("variable %q%s of type %q: %s", "$"+name, append(ast.Path{ast.PathName("")}, err.Path[2:]...), variable.Type, wrong)
	return &said
}

// wrongOneOf returns the way, which is continued, into a client's value to an input object of a
// type with @oneOf that has another number of fields than one, or to its null; nil where there
// is none. gqlparser looks at those in documents only.
func wrongOneOf(schema *ast.Schema, typ *ast.Type, value any, way ast.Path) ast.Path {
	switch v := value.(type) {
	case []any:
		for i, element := range v {
			if typ.Elem == nil {
				break
			}
			if wrong := wrongOneOf(schema, typ.Elem, element, append(way, ast.PathIndex(i))); wrong != nil {
				return wrong
			}
		}
	case map[string]any:
		def := schema.Types[typ.Name()]
		if def == nil || def.Kind != ast.InputObject {
			break
		}
		one := def.Directives.ForName("oneOf") != nil
		for _, field := range def.Fields {
			inner, given := v[field.Name]
			if !given {
				continue
			}
			at := append(way, ast.PathName(field.Name))
			if one && (inner == nil || len(v) != 1) {
				return at
			}
			if wrong := wrongOneOf(schema, field.Type, inner, at); wrong != nil {
				return wrong
			}
		}
		if len(v) == 0 && one {
			return way
		}
	}
	return nil
}

// shorten keeps the first hundred characters of a text that has more of them.
func shorten(text string) string {
	most := 100
	for i := range text {
		if most == 0 {
			return text[:i] + "…"
		}
		most--
	}
	return text
}
