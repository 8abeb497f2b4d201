package args

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

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
