// Package scalar reads and writes the values of the schema's scalars between
// GraphQL and Go. Its functions have the names by which the generated executor
// finds them: MarshalX writes a value into an answer, UnmarshalX reads one that
// a client sent.
//
// Invariants: nothing is converted silently (a string is not a number, a number
// is not a string, nothing is rounded or cut), and an error says what was given
// and what a good value looks like. Package literal has the grammar.
package scalar

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// MarshalString writes a string with the escapes that stored ones have.
func MarshalString(s string) graphql.Marshaler { return stringMarshaler(s) }

type stringMarshaler string

// textPart is how many bytes of a text are written at a time: one with escapes may be six times as
// long as JSON.
const textPart = 4 << 10

func (s stringMarshaler) MarshalGQL(w io.Writer) {
	buf := make([]byte, 0, min(len(s), textPart)+len(`""`))
	for begin := 0; ; begin = 1 { // between parts are no quotes
		part := s[:partOf(string(s))]
		s = s[len(part):]
		buf = rawjson.AppendString(buf[:0], string(part))
		if s == "" {
			_, _ = w.Write(buf[begin:]) // the writer is a buffer
			return
		}
		_, _ = w.Write(buf[begin : len(buf)-1])
	}
}

// partOf returns the length of the first part of a text, of whole characters.
func partOf(s string) int {
	if len(s) <= textPart {
		return len(s)
	}
	for before := range utf8.UTFMax {
		if utf8.RuneStart(s[textPart-before]) {
			return textPart - before
		}
	}
	return textPart // it is none's
}

// UnmarshalString reads a string, and nothing else.
func UnmarshalString(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return "", fmt.Errorf("String cannot be %s; write it in quotes, as \"text\"", literal.Show(v))
}

// MarshalID writes an id as a string.
func MarshalID(id string) graphql.Marshaler { return MarshalString(id) }

// UnmarshalID reads an id: a string, or an integer, which becomes its decimal
// digits.
func UnmarshalID(v any) (string, error) { return literal.ID(v) }

// MarshalInt writes an integer. The schema's Int has 32 bits; what does not fit
// is null, which is an error where the schema does not allow it. Package
// storage reports numbers in documents that do not fit before they come here.
func MarshalInt(n int) graphql.Marshaler {
	if n < math.MinInt32 || n > math.MaxInt32 {
		return graphql.Null
	}
	return intMarshaler(n)
}

type intMarshaler int

func (n intMarshaler) MarshalGQL(w io.Writer) {
	var buf [11]byte
	_, _ = w.Write(strconv.AppendInt(buf[:0], int64(n), 10)) // the writer is a buffer
}

// UnmarshalInt reads an integer of 32 bits.
func UnmarshalInt(v any) (int, error) { return literal.Int(v) }

// MarshalFloat writes a finite number in its shortest form.
func MarshalFloat(f float64) graphql.Marshaler {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return graphql.Null
	}
	return floatMarshaler(f)
}

type floatMarshaler float64

func (f floatMarshaler) MarshalGQL(w io.Writer) {
	b, err := json.Marshal(float64(f))
	if err != nil {
		b = []byte("null") // only infinities and NaN, which MarshalFloat keeps out
	}
	_, _ = w.Write(b) // the writer is a buffer
}

// UnmarshalFloat reads a finite number.
func UnmarshalFloat(v any) (float64, error) { return literal.Float(v) }

// MarshalDateTime writes a moment in UTC, with at most six digits of the
// second's fraction.
func MarshalDateTime(i driver.Instant) graphql.Marshaler { return instantMarshaler(i) }

type instantMarshaler driver.Instant

func (i instantMarshaler) MarshalGQL(w io.Writer) {
	var buf [40]byte
	b := append(buf[:0], '"')
	b = driver.Instant(i).Time().AppendFormat(b, "2006-01-02T15:04:05.999999Z")
	_, _ = w.Write(append(b, '"')) // the writer is a buffer
}

// UnmarshalDateTime reads a moment with an offset, exact to the microsecond.
func UnmarshalDateTime(v any) (driver.Instant, error) {
	t, err := literal.DateTime(v)
	if err != nil {
		return 0, err
	}
	return driver.InstantOf(t), nil
}

// MarshalDate writes a day, "2006-01-02".
func MarshalDate(s string) graphql.Marshaler { return MarshalString(s) }

// UnmarshalDate reads a day of the calendar.
func UnmarshalDate(v any) (string, error) { return literal.Date(v) }

// MarshalDecimal writes an exact decimal number as a string.
func MarshalDecimal(s string) graphql.Marshaler { return MarshalString(s) }

// UnmarshalDecimal reads an exact decimal number.
func UnmarshalDecimal(v any) (string, error) { return literal.Decimal(v) }

// MarshalJSON writes a JSON value as it is stored; nil is null.
func MarshalJSON(raw json.RawMessage) graphql.Marshaler {
	if raw == nil {
		return graphql.Null
	}
	return rawMarshaler(raw)
}

type rawMarshaler json.RawMessage

func (r rawMarshaler) MarshalGQL(w io.Writer) {
	_, _ = w.Write(r) // the writer is a buffer
}

// UnmarshalJSON reads any JSON value.
func UnmarshalJSON(v any) (json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("JSON cannot be %s: %w", literal.Show(v), err)
	}
	return b, nil
}

// enum reads one of an enum's values. gqlparser has looked at it, but takes
// values in variables in any case.
func enum[T ~string](name string, v any, values ...T) (T, error) {
	s, ok := v.(string)
	for _, value := range values {
		if ok && s == string(value) {
			return value, nil
		}
	}
	names := make([]string, len(values))
	for i, value := range values {
		names[i] = string(value)
	}
	return "", fmt.Errorf("%s cannot be %s; it is one of %s", name, literal.Show(v), strings.Join(names, ", "))
}

// MarshalOrderDirection writes a direction.
func MarshalOrderDirection(d storage.OrderDirection) graphql.Marshaler {
	return graphql.MarshalString(string(d))
}

// UnmarshalOrderDirection reads a direction.
func UnmarshalOrderDirection(v any) (storage.OrderDirection, error) {
	return enum("OrderDirection", v, storage.Asc, storage.Desc)
}

// MarshalConflictPolicy writes a policy.
func MarshalConflictPolicy(p storage.ConflictPolicy) graphql.Marshaler {
	return graphql.MarshalString(string(p))
}

// UnmarshalConflictPolicy reads a policy.
func UnmarshalConflictPolicy(v any) (storage.ConflictPolicy, error) {
	return enum("ConflictPolicy", v, storage.Reject, storage.Merge)
}

// MarshalOperation writes what made a version.
func MarshalOperation(o storage.Operation) graphql.Marshaler {
	return graphql.MarshalString(string(o))
}

// UnmarshalOperation reads what made a version.
func UnmarshalOperation(v any) (storage.Operation, error) {
	return enum("Operation", v,
		storage.OperationCreate, storage.OperationUpdate, storage.OperationDelete, storage.OperationRestore, storage.OperationImport, storage.OperationErase)
}

// FailedElement reports the error of an element of the list that the context's
// field is; the element is null then. The error has the path of the element,
// and stands in the request where the field does.
func FailedElement(ctx context.Context, index int, err error) {
	path := append(graphql.GetPath(ctx), ast.PathIndex(index))
	graphql.AddError(ctx, graphql.AddFieldLocationToError(ctx, gqlerror.WrapPath(path, err)))
}

// Nodes answers Query.nodes: what is wrong with one id is the error of its
// element, and the others are answered.
func Nodes(ctx context.Context, store *storage.Store, ids []string) ([]storage.Node, error) {
	found, bad, err := store.Nodes(ctx, ids)
	return failed(ctx, found, bad), err
}

// Refs answers a list of references: what is wrong with one is the error of its element.
func Refs[T storage.AnyDocument](ctx context.Context, coll *storage.Collection[T], d *storage.Document, field int, asOf *driver.Instant) ([]T, error) {
	found, bad, err := dataloader.Refs(ctx, coll, d, field, asOf)
	return failed(ctx, found, bad), err
}

func failed[T any](ctx context.Context, found []T, bad []storage.ElementError) []T {
	for _, b := range bad {
		FailedElement(ctx, b.Index, b.Err)
	}
	return found
}

// MarshalInput writes an input object; it is there for the generator, which
// asks for functions in pairs.
func MarshalInput(v map[string]any) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte("null")
		}
		_, _ = w.Write(b) // the writer is a buffer
	})
}

// UnmarshalInput reads an input object whose fields package storage looks at
// with the metadata of the type: filters, data and patches. Its names, the
// nulls in it and its built-in scalars have been validated; a missing field and
// a null one stay different. Lists are always []any.
func UnmarshalInput(v any) (map[string]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("an input object is needed here, not %s", literal.Show(v))
	}
	return m, nil
}
