package plan

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

// arguments are the arguments of one field: read once where they name no
// variable, and otherwise for each operation.
type arguments struct {
	field graphql.CollectedField
	read  func(a *given) any
	value any // nil: they depend on variables
	// constants are the values of those that do not.
	constants map[string]any
}

// given are the arguments that a request gives a field. They are read as the
// generated code reads them; where that has an error, so have they.
type given struct {
	field     graphql.CollectedField
	variables map[string]any
	constants map[string]any
	compiling bool // constants are read, and nothing else
	err       error
}

var errArguments = errors.New("arguments cannot be read")

// arguments returns the place of a field's arguments in those of an execution.
func (b *planning) arguments(f graphql.CollectedField, read func(a *given) any) int {
	args := arguments{field: f, read: read}
	args.constants = map[string]any{}
	value, err := args.with(&given{compiling: true}, nil)
	if err != nil {
		b.giveUp("%v", err)
	}
	if !slices.ContainsFunc(f.Arguments, func(a *ast.Argument) bool { return hasVariable(a.Value) }) {
		args.value = value
	}
	b.plan.args = append(b.plan.args, args)
	return len(b.plan.args) - 1
}

// arguments reads all arguments.
func (x *execution) arguments() error {
	x.args = x.few[:0]
	for i := range x.plan.args {
		a := &x.plan.args[i]
		if a.value != nil {
			x.args = append(x.args, a.value)
			continue
		}
		value, err := a.with(&x.given, x.oc.Variables)
		if err != nil {
			return err
		}
		x.args = append(x.args, value)
	}
	return nil
}

func (a *arguments) with(g *given, variables map[string]any) (any, error) {
	g.field, g.variables, g.constants = a.field, variables, a.constants
	value := a.read(g)
	if g.err != nil {
		return nil, fmt.Errorf("%s: %w", a.field.Name, errArguments)
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

// value is what an argument was given; false where it was not.
func (g *given) value(name string) (v any, ok bool) {
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

func (g *given) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// read reads an argument once, if it is constant, and otherwise for each
// operation.
func read[T any](g *given, name string, convert func(v any, ok bool) (T, error)) (value T) {
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

// optional reads an argument that may be null or left out.
func optional[T any](g *given, name string, convert func(any) (T, error)) *T {
	return read(g, name, func(v any, _ bool) (*T, error) {
		if v == nil {
			return nil, nil
		}
		value, err := convert(v)
		return &value, err
	})
}

// required reads an argument that validation has seen.
func required[T any](g *given, name string, convert func(any) (T, error)) T {
	return read(g, name, func(v any, ok bool) (value T, err error) {
		if ok {
			value, err = convert(v)
		}
		return value, err
	})
}

// list reads an argument that is a list, or one value in its place; nil for null.
func list[T any](g *given, name string, convert func(any) (T, error)) []T {
	return read(g, name, func(v any, _ bool) (values []T, err error) {
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

// documentArgs name one document.
type documentArgs struct {
	key     string
	asOf    *driver.Instant
	version *int
}

func documentArguments(g *given) any {
	return &documentArgs{
		key:     required(g, "key", scalar.UnmarshalID),
		asOf:    optional(g, "asOf", scalar.UnmarshalDateTime),
		version: optional(g, "version", scalar.UnmarshalInt),
	}
}

func pageArguments(g *given) any {
	a := &storage.PageArgs{
		OrderBy: list(g, "orderBy", readOrder),
		First:   optional(g, "first", scalar.UnmarshalInt),
		After:   optional(g, "after", scalar.UnmarshalString),
		Last:    optional(g, "last", scalar.UnmarshalInt),
		Before:  optional(g, "before", scalar.UnmarshalString),
		AsOf:    optional(g, "asOf", scalar.UnmarshalDateTime),
	}
	if where := optional(g, "where", scalar.UnmarshalInput); where != nil {
		a.Where = *where
	}
	return a
}

func readOrder(v any) (*storage.OrderInput, error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, errArguments
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

// versionsArguments reads the arguments of Document.versions.
func versionsArguments(g *given) any {
	return &storage.VersionsArgs{
		From:   optional(g, "from", scalar.UnmarshalDateTime),
		To:     optional(g, "to", scalar.UnmarshalDateTime),
		Author: optional(g, "author", scalar.UnmarshalID),
		Fields: list(g, "fields", graphql.UnmarshalString),
		First:  optional(g, "first", scalar.UnmarshalInt),
		After:  optional(g, "after", scalar.UnmarshalString),
		Last:   optional(g, "last", scalar.UnmarshalInt),
		Before: optional(g, "before", scalar.UnmarshalString),
	}
}

// instantArg is the instant that a reference is to be read at; nil: that of its
// document.
type instantArg struct{ at *driver.Instant }

func asOfArgument(g *given) any {
	return instantArg{optional(g, "asOf", scalar.UnmarshalDateTime)}
}

func idArgument(g *given) any { return required(g, "id", scalar.UnmarshalID) }

func idsArgument(g *given) any { return list(g, "ids", scalar.UnmarshalID) }
