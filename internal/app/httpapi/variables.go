package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// variableError words gqlparser's error about a variable's value, which has a path ("variable",
// its name, and the way into it) and two or three words, with Go's names of types. It returns
// err where that is about something else. With hints it adds what the schema has instead.
func variableError(schema *ast.Schema, operation *ast.OperationDefinition, variables map[string]any, hints bool, err *gqlerror.Error) *gqlerror.Error {
	if len(err.Path) < 2 {
		return err
	}
	name := fmt.Sprint(err.Path[1])
	variable := operation.VariableDefinitions.ForName(name)
	if variable == nil {
		return err
	}
	way := err.Path[2:]
	typ, within := typeAt(schema, variable.Type, way)
	where := fmt.Sprintf("variable %q%s", "$"+name, append(ast.Path{ast.PathName("")}, way...))
	said := *err
	said.Path = nil // in an answer it would name a field of the data
	said.Locations = []gqlerror.Location{{Line: variable.Position.Line, Column: variable.Position.Column}}
	switch {
	case err.Message == "unknown field" && within != nil:
		given := way[len(way)-1]
		said.Message = fmt.Sprintf("%s: %s has no field %q", where, within.Name, given)
		names := make([]string, 0, len(within.Fields))
		for _, field := range within.Fields {
			names = append(names, field.Name)
		}
		if near := nearest(fmt.Sprint(given), names); hints && near != "" {
			said.Message += "; " + near
		}
	case err.Message == "must be defined" && typ != nil:
		said.Message = fmt.Sprintf("%s of type %q was not provided", where, typ)
	case err.Message == "cannot be null" && typ != nil:
		said.Message = fmt.Sprintf("%s of type %q cannot be null", where, typ)
	default:
		said.Message = where + ": " + err.Message
		if typ == nil {
			break
		}
		if why := typeMismatch(schema.Types[typ.Name()], valueAt(variables[name], way), hints); why != "" {
			said.Message = where + ": " + why
		}
	}
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

// valueAt is what a way into a client's value leads to; nil: nothing. Where a
// list is wanted, the one value that stands for it is also its first element.
func valueAt(value any, way ast.Path) any {
	for _, step := range way {
		switch step := step.(type) {
		case ast.PathName:
			object, _ := value.(map[string]any)
			value = object[string(step)]
		case ast.PathIndex:
			if list, ok := value.([]any); ok && int(step) < len(list) {
				value = list[step]
			}
		}
	}
	return value
}

// typeMismatch returns why a value is not of a type, and what would be; "" where it may be.
func typeMismatch(def *ast.Definition, value any, hints bool) string {
	if def == nil {
		return ""
	}
	var want string
	switch {
	case def.Kind == ast.InputObject:
		want = "it is an object"
		if hints && len(def.Fields) > 0 {
			want += fmt.Sprintf(", as {%q: …}", def.Fields[0].Name)
		}
	case def.Kind == ast.Enum && hints:
		want = expectedEnum(def, value)
	case def.Name == "Int" && isInteger(value):
		want = fmt.Sprintf("it has 32 bits: %d to %d", math.MinInt32, math.MaxInt32)
	default:
		want = scalarWants(def.Name)
	}
	if want == "" {
		return ""
	}
	return fmt.Sprintf("%s cannot be %s; %s", def.Name, asJSON(value), want)
}

// scalarWants describes a value of one of GraphQL's own scalars.
func scalarWants(name string) string {
	switch name {
	case "Int":
		return "write a whole number without quotes, as 42"
	case "Float":
		return "write a number without quotes, as 0.5"
	case "Boolean":
		return "write true or false, without quotes"
	case "String":
		return `write it in quotes, as "text"`
	case "ID":
		return `write it as a string, as "vaultwarden", or as an integer`
	default:
		return ""
	}
}

// expectedEnum returns the value of an enum that may have been meant, or all of them.
func expectedEnum(def *ast.Definition, value any) string {
	const most = 20
	names := make([]string, len(def.EnumValues))
	for i, v := range def.EnumValues {
		names[i] = v.Name
	}
	given, _ := value.(string)
	if near := nearest(given, names); near != "" {
		return near
	}
	more := ""
	if len(names) > most {
		names, more = names[:most], ", …"
	}
	return "it is one of " + strings.Join(names, ", ") + more
}

// nearest returns a question with the names that may have been meant by another; "" where
// there are none, or that is too long to compare.
func nearest(given string, names []string) string {
	if len(given) > longestHint {
		return ""
	}
	near := core.SuggestionList(given, names)
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + core.QuotedOrList(near...) + "?"
}

// isInteger reports whether a value is a number that is written as an integer.
func isInteger(value any) bool {
	number, ok := value.(json.Number)
	digits := strings.TrimPrefix(number.String(), "-")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// asJSON writes a client's value as the client does, its first 100 characters.
func asJSON(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) != nil { // it was JSON
		return "that"
	}
	return shorten(strings.TrimSuffix(text.String(), "\n"))
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
