package plan

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/plan/args"
	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// arguments returns the place of a field's arguments in those of an execution.
func (b *planning) arguments(f graphql.CollectedField, read func(g *args.Given) any) int {
	field, err := args.Of(f, read)
	if err != nil {
		b.giveUp("%v", err)
	}
	b.plan.args = append(b.plan.args, field)
	return len(b.plan.args) - 1
}

// arguments reads the arguments of all fields.
func (x *execution) arguments() error {
	x.args = x.few[:0]
	for i := range x.plan.args {
		value, err := x.plan.args[i].Value(&x.given, x.oc.Variables)
		if err != nil {
			return err
		}
		x.args = append(x.args, value)
	}
	return nil
}

// documentArgs name one document.
type documentArgs struct {
	key     string
	asOf    *driver.Instant
	version *int
}

func documentArguments(g *args.Given) any {
	return &documentArgs{
		key:     args.Required(g, "key", scalar.UnmarshalID),
		asOf:    args.Optional(g, "asOf", scalar.UnmarshalDateTime),
		version: args.Optional(g, "version", scalar.UnmarshalInt),
	}
}

func pageArguments(g *args.Given) any {
	a := &storage.PageArgs{
		OrderBy: args.List(g, "orderBy", readOrder),
		First:   args.Optional(g, "first", scalar.UnmarshalInt),
		After:   args.Optional(g, "after", scalar.UnmarshalString),
		Last:    args.Optional(g, "last", scalar.UnmarshalInt),
		Before:  args.Optional(g, "before", scalar.UnmarshalString),
		AsOf:    args.Optional(g, "asOf", scalar.UnmarshalDateTime),
	}
	if where := args.Optional(g, "where", scalar.UnmarshalInput); where != nil {
		a.Where = *where
	}
	return a
}

func readOrder(v any) (*storage.OrderInput, error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, args.ErrUnreadable
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
func versionsArguments(g *args.Given) any {
	return &storage.VersionsArgs{
		From:   args.Optional(g, "from", scalar.UnmarshalDateTime),
		To:     args.Optional(g, "to", scalar.UnmarshalDateTime),
		Author: args.Optional(g, "author", scalar.UnmarshalID),
		Fields: args.List(g, "fields", graphql.UnmarshalString),
		First:  args.Optional(g, "first", scalar.UnmarshalInt),
		After:  args.Optional(g, "after", scalar.UnmarshalString),
		Last:   args.Optional(g, "last", scalar.UnmarshalInt),
		Before: args.Optional(g, "before", scalar.UnmarshalString),
	}
}

// instantArg is the instant that a reference is to be read at; nil: that of its
// document.
type instantArg struct{ at *driver.Instant }

func asOfArgument(g *args.Given) any {
	return instantArg{args.Optional(g, "asOf", scalar.UnmarshalDateTime)}
}

func idArgument(g *args.Given) any { return args.Required(g, "id", scalar.UnmarshalID) }

func idsArgument(g *args.Given) any { return args.List(g, "ids", scalar.UnmarshalID) }
