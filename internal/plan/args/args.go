// Package args reads the arguments of fields, for operations that are compiled:
// what names no variable is read once, and the rest for each request (args.go).
// Which fields have which is in kinds.go.
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
