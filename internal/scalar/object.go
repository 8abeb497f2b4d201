package scalar

import (
	"context"
	"io"
	"slices"

	"github.com/99designs/gqlgen/graphql"
)

// Fields are the values of an object's fields while it is being answered. It
// takes the place of graphql.FieldSet in generated code for objects whose
// fields are resolved one after another, which need nothing of what that does
// for concurrent and deferred ones.
type Fields struct {
	fields   []graphql.CollectedField
	Values   []graphql.Marshaler
	Invalids uint32 // how many non-null fields are null
}

// NewFields returns the set for the fields that were asked for.
func NewFields(fields []graphql.CollectedField) *Fields {
	return &Fields{fields: fields, Values: make([]graphql.Marshaler, len(fields))}
}

// MarshalGQL writes the object. Where a response name occurs more than once,
// which fields of an interface and of a type behind it may cause, the first
// one counts.
func (f *Fields) MarshalGQL(w io.Writer) {
	separator := `{"`
	for i := range f.fields {
		name := f.fields[i].Alias
		if slices.ContainsFunc(f.fields[:i], func(c graphql.CollectedField) bool { return c.Alias == name }) {
			continue
		}
		// Writes go to a buffer, which does not fail; names need no escapes.
		_, _ = io.WriteString(w, separator)
		_, _ = io.WriteString(w, name)
		_, _ = io.WriteString(w, `":`)
		f.Values[i].MarshalGQL(w)
		separator = `,"`
	}
	if separator == `{"` {
		_, _ = io.WriteString(w, "{")
	}
	_, _ = io.WriteString(w, "}")
}

// Stored answers a field with the bytes that are stored, without decoding
// them; nil is null.
func Stored(
	ctx context.Context, oc *graphql.OperationContext, field graphql.CollectedField, object string, raw []byte, err error,
) graphql.Marshaler {
	if err != nil {
		return Failed(ctx, oc, field, object, err)
	}
	if raw == nil {
		return graphql.Null
	}
	return rawMarshaler(raw)
}

// StoredList is Stored for a list that is never null: nil is empty.
func StoredList(
	ctx context.Context, oc *graphql.OperationContext, field graphql.CollectedField, object string, raw []byte, err error,
) graphql.Marshaler {
	if err == nil && raw == nil {
		return graphql.Array{}
	}
	return Stored(ctx, oc, field, object, raw, err)
}

// Failed reports the error of a field and answers it with null.
func Failed(
	ctx context.Context, oc *graphql.OperationContext, field graphql.CollectedField, object string, err error,
) graphql.Marshaler {
	ctx = graphql.WithFieldContext(ctx, &graphql.FieldContext{Object: object, Field: field, IsMethod: true})
	oc.Error(ctx, graphql.AddFieldLocationToError(ctx, err))
	return graphql.Null
}
