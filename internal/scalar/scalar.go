// Package scalar reads and writes the values of the schema's scalars between
// GraphQL and Go. Its functions have the names by which the generated executor
// finds them: MarshalX writes a value into an answer, UnmarshalX reads one that
// a client sent.
//
// Invariants: nothing is converted silently (a string is not a number, a number
// is not a string, nothing is rounded or cut), and an error says what was given
// and what a good value looks like.
//
// Clients' values arrive as string, bool, json.Number, int64, float64, []any,
// map[string]any or nil: numbers as json.Number from variables, and as int64 or
// float64 from the text of a query.
package scalar

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// MarshalString writes a string with the escapes that stored ones have.
func MarshalString(s string) graphql.Marshaler { return stringMarshaler(s) }

type stringMarshaler string

func (s stringMarshaler) MarshalGQL(w io.Writer) {
	_, _ = w.Write(rawjson.AppendString(make([]byte, 0, len(s)+len(`""`)), string(s))) // the writer is a buffer
}

// UnmarshalString reads a string, and nothing else.
func UnmarshalString(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return "", fmt.Errorf("String cannot be %s; write it in quotes, as \"text\"", show(v))
}

// MarshalID writes an id as a string.
func MarshalID(id string) graphql.Marshaler { return MarshalString(id) }

// UnmarshalID reads an id: a string, or an integer, which becomes its decimal
// digits.
func UnmarshalID(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case int:
		return strconv.Itoa(v), nil
	case json.Number:
		if isInteger(v.String()) {
			return v.String(), nil
		}
	}
	return "", fmt.Errorf("ID cannot be %s; write it as a string, as \"vaultwarden\", or as an integer", show(v))
}

// isInteger reports whether s is an integer as JSON writes it.
func isInteger(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == ""
}

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

// UnmarshalInt reads an integer of 32 bits. A number without a fraction, such
// as 1.0 or 1e3, is not one in GraphQL's grammar.
func UnmarshalInt(v any) (int, error) {
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case int:
		n = int64(v)
	case int32:
		n = int64(v)
	case json.Number:
		var err error
		if n, err = strconv.ParseInt(v.String(), 10, 64); err != nil {
			if isInteger(v.String()) {
				return 0, intRange(v)
			}
			return 0, intForm(v)
		}
	case float64:
		if n = int64(v); float64(n) != v || math.Abs(v) > 1<<53 {
			return 0, intForm(v)
		}
	default:
		return 0, intForm(v)
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		return 0, intRange(v)
	}
	return int(n), nil
}

func intForm(v any) error {
	return fmt.Errorf("Int cannot be %s; write a whole number without quotes, as 42", show(v))
}

func intRange(v any) error {
	return fmt.Errorf("Int cannot be %s; it has 32 bits: %d to %d", show(v), math.MinInt32, math.MaxInt32)
}

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
func UnmarshalFloat(v any) (float64, error) {
	switch v := v.(type) {
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v, nil
		}
	case int64:
		return float64(v), nil
	case int:
		return float64(v), nil
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		if err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f, nil
		}
		if f, numErr := strconv.ParseFloat(v.String(), 64); numErr != nil && math.IsInf(f, 0) {
			return 0, fmt.Errorf("Float cannot be %s; the largest is about 1.8e308", show(v))
		}
	}
	return 0, fmt.Errorf("Float cannot be %s; write a number without quotes, as 0.5", show(v))
}

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
	s, ok := v.(string)
	if !ok {
		return 0, fmt.Errorf("DateTime cannot be %s; write it as \"2024-03-01T12:30:00Z\"", show(v))
	}
	t, err := literal.DateTime(s)
	if err != nil {
		return 0, err
	}
	return driver.InstantOf(t), nil
}

// MarshalDate writes a day, "2006-01-02".
func MarshalDate(s string) graphql.Marshaler { return MarshalString(s) }

// UnmarshalDate reads a day of the calendar.
func UnmarshalDate(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("Date cannot be %s; write it as \"2024-03-01\"", show(v))
	}
	return literal.Date(s)
}

// MarshalDecimal writes an exact decimal number as a string.
func MarshalDecimal(s string) graphql.Marshaler { return MarshalString(s) }

// UnmarshalDecimal reads an exact decimal number from a string, or from a
// number whose digits are still as they were written: one in variables, or an
// integer.
func UnmarshalDecimal(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return literal.Decimal(v)
	case json.Number:
		return literal.Decimal(v.String())
	case int64:
		return strconv.FormatInt(v, 10), nil
	case int:
		return strconv.Itoa(v), nil
	default:
		return "", fmt.Errorf("Decimal cannot be %s; write it in quotes, as \"19.90\", so that nothing is rounded", show(v))
	}
}

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
		return nil, fmt.Errorf("JSON cannot be %s: %w", show(v), err)
	}
	return b, nil
}

// show puts what a client gave into words, cut where it is long.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case json.Number:
		return cut(v.String())
	case string:
		return strconv.Quote(cut(v))
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return cut(fmt.Sprint(v))
	}
}

func cut(s string) string {
	const limit = 60
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
