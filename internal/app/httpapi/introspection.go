package httpapi

import (
	"context"
	"regexp"
	"strings"

	"github.com/99designs/gqlgen/graphql"
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

// secrecy takes out of errors what a server without introspection is not to tell: the
// names of the schema that the client has not sent.
type secrecy struct {
	names   map[string]bool // nil: there are no secrets
	pattern *regexp.Regexp  // a name, and a character that says that it is one
}

// keepSecret returns the secrecy of a schema.
func keepSecret(schema *ast.Schema) secrecy {
	s := secrecy{map[string]bool{}, regexp.MustCompile(`["\[.@]?[_A-Za-z][_0-9A-Za-z]*`)}
	for _, def := range schema.Types {
		if def.BuiltIn {
			continue
		}
		s.names[def.Name] = true
		for _, value := range def.EnumValues {
			s.names[value.Name] = true
		}
		for _, field := range def.Fields {
			s.names[field.Name] = true
			for _, argument := range field.Arguments {
				s.names[argument.Name] = true
			}
		}
	}
	return s
}

// censor is a message without the names that are not among what was sent. A word in
// lower case is a name where it is in quotes, behind a dot, or in a list.
func (s secrecy) censor(message, sent string) string {
	if s.names == nil {
		return message
	}
	const most = 4_000 // bytes; of longer ones less is shown than that, with names that are whole
	if len(message) > most {
		message = message[:most/2] + "…" + message[len(message)-most/2:]
	}
	return s.pattern.ReplaceAllStringFunc(message, func(found string) string {
		name := strings.TrimLeft(found, `"[.@`)
		if !s.names[name] || name == found && name == strings.ToLower(name) || hasWord(sent, name) {
			return found
		}
		return strings.TrimSuffix(found, name) + "…"
	})
}

// presenter is a presenter of errors that censors what fields say of bad input.
func (s secrecy) presenter(present graphql.ErrorPresenterFunc) graphql.ErrorPresenterFunc {
	if s.names == nil {
		return present
	}
	return func(ctx context.Context, err error) *gqlerror.Error {
		shown := present(ctx, err)
		if shown != nil && codeOf(shown) == CodeBadInput && graphql.GetFieldContext(ctx) != nil {
			shown.Message = s.censor(shown.Message, graphql.GetOperationContext(ctx).RawQuery)
		}
		return shown
	}
}

// hasWord reports whether a text has a name that is not a part of another.
func hasWord(text, name string) bool {
	letter := func(at int) bool {
		return at >= 0 && at < len(text) && (text[at] == '_' || text[at] >= '0' && text[at] <= '9' || text[at]|0x20 >= 'a' && text[at]|0x20 <= 'z')
	}
	for at := 0; ; at++ {
		next := strings.Index(text[at:], name)
		if next < 0 {
			return false
		}
		if at += next; !letter(at-1) && !letter(at+len(name)) {
			return true
		}
	}
}
