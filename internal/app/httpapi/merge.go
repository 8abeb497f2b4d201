package httpapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// merging checks that the fields of one response name can be merged: that they have
// one type in the answer, and are the same field with the same arguments where they
// can be those of one object. GraphQL's specification words that for all pairs of
// fields, and gqlparser compares all pairs. Here each field is compared with the first
// of those that it may be merged with, what is selected of them is merged, and so on,
// as Simon Adameit has found for Sangria. It takes a step for each field, as often as
// the fragments with it are spread at different places, and ends at the first conflict.
// The document is valid otherwise.
type merging struct {
	*budget
	schema *ast.Schema
	path   []string // response names, from the root
}

func (m *merging) document(doc *ast.QueryDocument) {
	for _, operation := range doc.Operations {
		m.merge([]*ast.Field{{SelectionSet: operation.SelectionSet}}, true, true)
	}
}

// merge checks what is selected of fields together: whether it has one shape in the
// answer, and whether it has one meaning.
func (m *merging) merge(fields []*ast.Field, shape, meaning bool) {
	for _, same := range m.collect(fields) {
		m.path = append(m.path, same.name)
		overlapping := [][]*ast.Field{same.fields}
		if meaning {
			overlapping = m.overlapping(same.fields)
			for _, group := range overlapping {
				m.sameMeaning(group)
			}
		}
		if shape {
			m.sameShape(same.fields)
		}
		if len(overlapping) == 1 {
			m.merge(same.fields, shape, meaning)
		} else {
			if shape {
				m.merge(same.fields, true, false)
			}
			for _, group := range overlapping {
				m.merge(group, false, true)
			}
		}
		m.path = m.path[:len(m.path)-1]
	}
}

// namesake are fields of one response name.
type namesake struct {
	name   string
	fields []*ast.Field
}

// collect returns what is selected of some fields, in the order of the document.
func (m *merging) collect(fields []*ast.Field) []namesake {
	var (
		list   []namesake
		places map[string]int
		spread map[*ast.FragmentDefinition]bool
		add    func(set ast.SelectionSet)
	)
	add = func(set ast.SelectionSet) {
		for _, selection := range set {
			m.spend(1)
			switch s := selection.(type) {
			case *ast.Field:
				name := cmp.Or(s.Alias, s.Name)
				if places == nil {
					m.spend(2) // for what follows
					places = map[string]int{}
				}
				at, ok := places[name]
				if !ok {
					at = len(list)
					places[name] = at
					list = append(list, namesake{name: name})
				}
				list[at].fields = append(list[at].fields, s)
			case *ast.InlineFragment:
				add(s.SelectionSet)
			case *ast.FragmentSpread:
				if !spread[s.Definition] {
					if spread == nil {
						spread = map[*ast.FragmentDefinition]bool{}
					}
					spread[s.Definition] = true
					add(s.Definition.SelectionSet)
				}
			}
		}
	}
	for _, f := range fields {
		add(f.SelectionSet)
	}
	return list
}

// overlapping divides fields by the object types that they belong to: those of a type
// with those of interfaces and unions, which any object may have.
func (m *merging) overlapping(fields []*ast.Field) [][]*ast.Field {
	parent := func(f *ast.Field) *ast.Definition {
		if f.ObjectDefinition.Kind == ast.Object {
			return f.ObjectDefinition
		}
		return nil // for all
	}
	var parents []*ast.Definition
	for _, f := range fields {
		if p := parent(f); p != nil && !slices.Contains(parents, p) {
			m.spend(1 + len(parents)/namesPerStep)
			parents = append(parents, p)
		}
	}
	if len(parents) < 2 {
		return [][]*ast.Field{fields}
	}
	m.spend(len(parents) * len(fields) / namesPerStep)
	groups := make([][]*ast.Field, len(parents))
	for i, of := range parents {
		for _, f := range fields {
			if p := parent(f); p == nil || p == of {
				groups[i] = append(groups[i], f)
			}
		}
	}
	return groups
}

// sameMeaning checks that all fields are one, with the same arguments.
func (m *merging) sameMeaning(fields []*ast.Field) {
	first := fields[0]
	for _, f := range fields[1:] {
		switch {
		case f.Name != first.Name:
			m.conflict(f, `"%s" and "%s" are different fields`, first.Name, f.Name)
		case !m.sameArguments(first.Arguments, f.Arguments):
			m.conflict(f, "they have differing arguments")
		}
	}
}

func (m *merging) sameArguments(a, b ast.ArgumentList) bool {
	if len(a) != len(b) {
		return false
	}
	for _, argument := range a {
		other := b.ForName(argument.Name)
		if other == nil || !m.sameValue(argument.Value, other.Value) {
			return false
		}
	}
	return true
}

// sameValue compares values as they are written; the fields of an object may be in
// another order.
func (m *merging) sameValue(a, b *ast.Value) bool {
	m.spend(1 + len(a.Raw)/bytesPerStep)
	if a.Kind != b.Kind || a.Raw != b.Raw || len(a.Children) != len(b.Children) {
		return false
	}
	for i, child := range a.Children {
		other := b.Children[i].Value
		if a.Kind == ast.ObjectValue {
			m.spend(len(b.Children) / namesPerStep)
			other = b.Children.ForName(child.Name)
		}
		if other == nil || !m.sameValue(child.Value, other) {
			return false
		}
	}
	return true
}

// sameShape checks that the values of all fields look alike in the answer.
func (m *merging) sameShape(fields []*ast.Field) {
	first := fields[0].Definition.Type
	for _, f := range fields[1:] {
		if !m.alike(first, f.Definition.Type) {
			m.conflict(f, `they return conflicting types "%s" and "%s"`, first, f.Definition.Type)
		}
	}
}

// alike reports whether two types are lists of the same depth and as often null, of
// the same scalar or enum, or of any objects.
func (m *merging) alike(a, b *ast.Type) bool {
	if a.NonNull != b.NonNull || (a.Elem == nil) != (b.Elem == nil) {
		return false
	}
	if a.Elem != nil {
		return m.alike(a.Elem, b.Elem)
	}
	return a.NamedType == b.NamedType || !m.schema.Types[a.NamedType].IsLeafType() && !m.schema.Types[b.NamedType].IsLeafType()
}

// conflict ends the work with the error that a field cannot be merged.
func (m *merging) conflict(f *ast.Field, why string, args ...any) {
	err := &gqlerror.Error{
		Rule: rules.OverlappingFieldsCanBeMergedRule.Name,
		Message: fmt.Sprintf(`Fields "%s" conflict because %s. Use different aliases on the fields to fetch both if this was intentional.`,
			strings.Join(m.path, `" conflict because subfields "`), fmt.Sprintf(why, args...)),
		Locations: []gqlerror.Location{{Line: f.Position.Line, Column: f.Position.Column}},
	}
	errcode.Set(err, errcode.ValidationFailed)
	m.end(err)
}
