package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// Inputs arrive as the maps that a GraphQL server makes of input objects: the
// server has checked names and built-in scalars; custom scalars are still what
// the request held. What follows turns one value into its stored form.

// encode returns the stored form of one value that is not null (of an element,
// for a list). The path is for errors.
func (f *Field) encode(path string, v any) ([]byte, error) {
	if f.Kind == KindJSON {
		return jsonInput(path, v)
	}
	value, err := f.operand(path, v)
	if err != nil {
		return nil, err
	}
	switch x := value.(type) {
	case int64:
		return strconv.AppendInt(nil, x, 10), nil
	case float64:
		raw, err := json.Marshal(x)
		if err != nil { // floats from clients are finite
			return nil, err
		}
		return normal.Value(raw)
	case bool:
		return strconv.AppendBool(nil, x), nil
	case driver.Instant:
		return rawjson.AppendString(nil, x.String()), nil
	}
	s, _ := value.(string)
	if f.Kind == KindRef {
		if why := KeyProblem(s); why != "" {
			return nil, badInput("%s: %s cannot be the key of a %s: it %s", path, quoteShort(s), f.Ref, why)
		}
	}
	return rawjson.AppendString(nil, s), nil
}

// operand returns the value that a filter compares the field with.
func (f *Field) operand(path string, v any) (driver.Value, error) {
	var value driver.Value
	var err error
	s, isText := text(v)
	if isText {
		v = s
	}
	switch f.Kind {
	case KindInt:
		var n int
		n, err = literal.Int(v)
		value = int64(n)
	case KindFloat:
		value, err = literal.Float(v)
	case KindBoolean:
		b, ok := v.(bool)
		if !ok {
			return nil, wrongInput(path, v, "true or false")
		}
		return b, nil
	case KindDateTime:
		var at time.Time
		at, err = literal.DateTime(v)
		value = driver.InstantOf(at)
	case KindDate:
		value, err = literal.Date(v)
	case KindDecimal:
		value, err = literal.Decimal(v)
	case KindEnum:
		if !isText || !slices.Contains(f.Enum, s) {
			return nil, wrongInput(path, v, fmt.Sprintf("one of %v", f.Enum))
		}
		return s, nil
	default:
		if f.Kind == KindString && !isText {
			return nil, wrongInput(path, v, "a string")
		}
		if s, err = literal.ID(v); !utf8.ValidString(s) {
			return nil, badInput("%s: the text is not valid UTF-8", path)
		}
		value = s
	}
	if err != nil {
		return nil, badInput("%s: %v", path, err)
	}
	return value, nil
}

func text(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case *string:
		if s != nil {
			return *s, true
		}
	case fmt.Stringer:
		if _, number := v.(json.Number); !number {
			return s.String(), true
		}
	}
	return "", false
}

func jsonInput(path string, v any) ([]byte, error) {
	raw, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, badInput("%s: the value cannot be written as JSON: %v", path, err)
		}
	}
	out, err := normal.Value(raw)
	if err != nil {
		return nil, badInput("%s: %v", path, err)
	}
	if n := outOfRange(out); n != nil {
		return nil, badInput("%s: %s is too large; the largest is about 1.8e308: write it in quotes", path, sample(n))
	}
	return out, nil
}

// outOfRange returns the first number in a JSON value that is larger than a 64-bit float can
// be; nil for none.
func outOfRange(raw []byte) []byte {
	for i := 0; i >= 0 && i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			i = rawjson.End(raw, i) - 1
		case c == '-' || '0' <= c && c <= '9':
			number := raw[i:rawjson.End(raw, i)]
			const always = 18 // bytes without an exponent are in range
			if (len(number) > always || bytes.ContainsAny(number, "eE")) && !literal.InRange(number) {
				return number
			}
			i += len(number) - 1
		}
	}
	return nil
}

func wrongInput(path string, v any, want string) error {
	return badInput("%s: expected %s, got %s", path, want, literal.Show(v))
}

// asList returns the elements of a list input; a single value is a list of one,
// as GraphQL coerces it.
func asList(v any) []any {
	switch l := v.(type) {
	case []any:
		return l
	case []string:
		out := make([]any, len(l))
		for i, s := range l {
			out[i] = s
		}
		return out
	case []map[string]any:
		out := make([]any, len(l))
		for i, m := range l {
			out[i] = m
		}
		return out
	}
	return []any{v}
}
