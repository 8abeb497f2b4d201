// Package args reads the arguments of fields, for operations that are compiled:
// what names no variable is read once, and the rest for each request.
//
// Invariants: values are read by the functions that the generated code reads them
// with, and in its order. Where one cannot be read, the error is ErrUnreadable and
// says no more: the caller then leaves the operation to the generated code, which
// reports what is wrong.
package args

import (
	"errors"
	"fmt"
	"slices"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// ErrUnreadable is the error of arguments that cannot be read.
var ErrUnreadable = errors.New("arguments cannot be read")

// Field is the arguments of one field of an operation.
type Field struct {
	field graphql.CollectedField
	read  func(g *Given) any
	value any // nil: they depend on variables
	// constants are the values of those that do not.
	constants map[string]any
}

// Of returns the arguments of a field. Read turns them into one value, never nil.
func Of(f graphql.CollectedField, read func(g *Given) any) (Field, error) {
	args := Field{field: f, read: read, constants: map[string]any{}}
	value, err := args.with(&Given{compiling: true}, nil)
	if !slices.ContainsFunc(f.Arguments, func(a *ast.Argument) bool { return hasVariable(a.Value) }) {
		args.value = value
	}
	return args, err
}

// Value returns what the field's read makes of its arguments. It is shared between
// requests where the arguments name no variable. It uses the memory of g.
func (f *Field) Value(g *Given, variables map[string]any) (any, error) {
	if f.value != nil {
		return f.value, nil
	}
	return f.with(g, variables)
}

func (f *Field) with(g *Given, variables map[string]any) (any, error) {
	g.field, g.variables, g.constants = f.field, variables, f.constants
	value := f.read(g)
	if g.err != nil {
		return nil, fmt.Errorf("%s: %w", f.field.Name, ErrUnreadable)
	}
	return value, nil
}

func hasVariable(v *ast.Value) bool {
	if v.Kind == ast.Variable {
		return true
	}
	for _, child := range v.Children {
		if hasVariable(child.Value) {
			return true
		}
	}
	return false
}

// Given is what a request gives a field. The zero value is ready for use.
type Given struct {
	field     graphql.CollectedField
	variables map[string]any
	constants map[string]any
	compiling bool // constants are read, and nothing else
	err       error
}

// value is what an argument was given; false where it was not.
func (g *Given) value(name string) (v any, ok bool) {
	var err error
	if a := g.field.Arguments.ForName(name); a != nil {
		if a.Value.Kind == ast.Variable {
			v, ok = g.variables[a.Value.Raw]
		} else {
			v, err = a.Value.Value(g.variables)
			ok = true
		}
	}
	if def := g.field.Definition.Arguments.ForName(name); !ok && def != nil && def.DefaultValue != nil {
		v, err = def.DefaultValue.Value(g.variables)
		ok = true
	}
	g.fail(err)
	return v, ok
}

func (g *Given) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// argument reads an argument once, if it is constant, and otherwise for each
// request.
func argument[T any](g *Given, name string, convert func(v any, ok bool) (T, error)) (value T) {
	if known, ok := g.constants[name].(T); ok {
		return known
	}
	a := g.field.Arguments.ForName(name)
	constant := a == nil || !hasVariable(a.Value)
	if g.compiling && !constant {
		return value
	}
	v, ok := g.value(name)
	value, err := convert(v, ok)
	g.fail(err)
	if g.compiling {
		g.constants[name] = value
	}
	return value
}

// Optional reads an argument that may be null or left out: nil.
func Optional[T any](g *Given, name string, convert func(any) (T, error)) *T {
	return argument(g, name, func(v any, _ bool) (*T, error) {
		if v == nil {
			return nil, nil
		}
		value, err := convert(v)
		return &value, err
	})
}

// Required reads an argument that validation has seen.
func Required[T any](g *Given, name string, convert func(any) (T, error)) T {
	return argument(g, name, func(v any, ok bool) (value T, err error) {
		if ok {
			value, err = convert(v)
		}
		return value, err
	})
}

// List reads an argument that is a list, or one value in its place; nil for null.
func List[T any](g *Given, name string, convert func(any) (T, error)) []T {
	return argument(g, name, func(v any, _ bool) (values []T, err error) {
		if v == nil {
			return nil, nil
		}
		elements := graphql.CoerceList(v)
		values = make([]T, len(elements))
		for i, e := range elements {
			if values[i], err = convert(e); err != nil {
				return nil, err
			}
		}
		return values, nil
	})
}

// What follows is given to Of, and says what a field's Value is.

// Document names one document.
type Document struct {
	Key     string
	AsOf    *driver.Instant
	Version *int
}

// OfDocument reads the arguments of a document: a *Document.
func OfDocument(g *Given) any {
	return &Document{
		Key:     Required(g, "key", scalar.UnmarshalID),
		AsOf:    Optional(g, "asOf", scalar.UnmarshalDateTime),
		Version: Optional(g, "version", scalar.UnmarshalInt),
	}
}

// OfPage reads the arguments of a page of documents: a *storage.PageArgs.
func OfPage(g *Given) any {
	a := &storage.PageArgs{
		OrderBy: List(g, "orderBy", readOrder),
		First:   Optional(g, "first", scalar.UnmarshalInt),
		After:   Optional(g, "after", scalar.UnmarshalString),
		Last:    Optional(g, "last", scalar.UnmarshalInt),
		Before:  Optional(g, "before", scalar.UnmarshalString),
		AsOf:    Optional(g, "asOf", scalar.UnmarshalDateTime),
	}
	if where := Optional(g, "where", scalar.UnmarshalInput); where != nil {
		a.Where = *where
	}
	return a
}

func readOrder(v any) (*storage.OrderInput, error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, ErrUnreadable
	}
	order := &storage.OrderInput{Direction: storage.Asc}
	var err error
	if order.Field, err = graphql.UnmarshalString(fields["field"]); err != nil {
		return nil, err
	}
	if direction, ok := fields["direction"]; ok {
		order.Direction, err = scalar.UnmarshalOrderDirection(direction)
	}
	return order, err
}

// OfVersions reads the arguments of a document's versions: a *storage.VersionsArgs.
func OfVersions(g *Given) any {
	return &storage.VersionsArgs{
		From:   Optional(g, "from", scalar.UnmarshalDateTime),
		To:     Optional(g, "to", scalar.UnmarshalDateTime),
		Author: Optional(g, "author", scalar.UnmarshalID),
		Fields: List(g, "fields", graphql.UnmarshalString),
		First:  Optional(g, "first", scalar.UnmarshalInt),
		After:  Optional(g, "after", scalar.UnmarshalString),
		Last:   Optional(g, "last", scalar.UnmarshalInt),
		Before: Optional(g, "before", scalar.UnmarshalString),
	}
}

// Reference says at which instant a reference is to be read; nil: that of its
// document.
type Reference struct{ AsOf *driver.Instant }

// OfReference reads the argument of a reference: a Reference.
func OfReference(g *Given) any {
	return Reference{AsOf: Optional(g, "asOf", scalar.UnmarshalDateTime)}
}

// OfNode reads the argument of node: a string.
func OfNode(g *Given) any { return Required(g, "id", scalar.UnmarshalID) }

// OfNodes reads the argument of nodes: strings.
func OfNodes(g *Given) any { return List(g, "ids", scalar.UnmarshalID) }
