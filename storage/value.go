package storage

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
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
	switch f.Kind {
	case KindString, KindID, KindRef:
		s, ok := text(v)
		if !ok && f.Kind != KindString {
			s, ok = integerText(v) // GraphQL's ID accepts integers
		}
		if !ok {
			return nil, wrongInput(path, v, "a string")
		}
		if !utf8.ValidString(s) {
			return nil, badInput("%s: the text is not valid UTF-8", path)
		}
		if f.Kind == KindRef {
			if why := KeyProblem(s); why != "" {
				return nil, badInput("%s: %s cannot be the key of a %s: it %s", path, quoteShort(s), f.Ref, why)
			}
		}
		return rawjson.AppendString(nil, s), nil
	case KindInt:
		n, err := intInput(path, v)
		return strconv.AppendInt(nil, n, 10), err
	case KindFloat:
		x, err := floatInput(path, v)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(x)
		if err != nil {
			return nil, wrongInput(path, v, "a finite number")
		}
		return normal.Value(raw)
	case KindBoolean:
		b, ok := v.(bool)
		if !ok {
			return nil, wrongInput(path, v, "true or false")
		}
		return strconv.AppendBool(nil, b), nil
	case KindDateTime:
		at, err := instantInput(path, v)
		return rawjson.AppendString(nil, at.String()), err
	case KindDate:
		s, err := dateInput(path, v)
		return rawjson.AppendString(nil, s), err
	case KindDecimal:
		s, err := decimalInput(path, v)
		return rawjson.AppendString(nil, s), err
	case KindEnum:
		s, err := f.enumInput(path, v)
		return rawjson.AppendString(nil, s), err
	default:
		return jsonInput(path, v)
	}
}

// operand returns the value that a filter compares the field with.
func (f *Field) operand(path string, v any) (driver.Value, error) {
	switch f.Kind {
	case KindInt:
		n, err := intInput(path, v)
		return n, err
	case KindFloat:
		x, err := floatInput(path, v)
		return x, err
	case KindBoolean:
		b, ok := v.(bool)
		if !ok {
			return nil, wrongInput(path, v, "true or false")
		}
		return b, nil
	case KindDateTime:
		at, err := instantInput(path, v)
		return at, err
	case KindDate:
		return dateInput(path, v)
	case KindDecimal:
		return decimalInput(path, v)
	case KindEnum:
		return f.enumInput(path, v)
	default:
		s, ok := text(v)
		if !ok && f.Kind != KindString {
			s, ok = integerText(v)
		}
		if !ok {
			return nil, wrongInput(path, v, "a string")
		}
		if !utf8.ValidString(s) {
			return nil, badInput("%s: the text is not valid UTF-8", path)
		}
		return s, nil
	}
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

func integerText(v any) (string, bool) {
	switch n := v.(type) {
	case int:
		return strconv.Itoa(n), true
	case int64:
		return strconv.FormatInt(n, 10), true
	case json.Number:
		_, err := strconv.ParseInt(string(n), 10, 64)
		return string(n), err == nil
	}
	return "", false
}

func intInput(path string, v any) (int64, error) {
	var n int64
	switch x := v.(type) {
	case int:
		n = int64(x)
	case int32:
		n = int64(x)
	case int64:
		n = x
	case float64:
		if n = int64(x); float64(n) != x {
			return 0, wrongInput(path, v, "an integer")
		}
	case json.Number:
		var err error
		if n, err = strconv.ParseInt(string(x), 10, 64); err != nil {
			return 0, wrongInput(path, v, "an integer between -2147483648 and 2147483647")
		}
	default:
		return 0, wrongInput(path, v, "an integer")
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		return 0, badInput("%s: %d does not fit in 32 bits, as GraphQL's Int does: it must be between -2147483648 and 2147483647", path, n)
	}
	return n, nil
}

func floatInput(path string, v any) (float64, error) {
	var x float64
	switch n := v.(type) {
	case int:
		x = float64(n)
	case int32:
		x = float64(n)
	case int64:
		x = float64(n)
	case float64:
		x = n
	case json.Number:
		var err error
		if x, err = strconv.ParseFloat(string(n), 64); err != nil {
			return 0, wrongInput(path, v, "a number that a float64 can hold")
		}
	default:
		return 0, wrongInput(path, v, "a number")
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, wrongInput(path, v, "a finite number")
	}
	return x, nil
}

func instantInput(path string, v any) (driver.Instant, error) {
	if at, ok := v.(driver.Instant); ok {
		return at, nil
	}
	s, ok := text(v)
	if !ok {
		return 0, wrongInput(path, v, `a time with an offset, like "2026-01-31T12:00:00Z" or "2026-01-31T13:00:00+01:00"`)
	}
	at, err := literal.DateTime(s)
	if err != nil {
		return 0, badInput("%s: %v", path, err)
	}
	return driver.InstantOf(at), nil
}

func dateInput(path string, v any) (string, error) {
	s, ok := text(v)
	if !ok {
		return "", wrongInput(path, v, `a day that exists, like "2026-01-31"`)
	}
	day, err := literal.Date(s)
	if err != nil {
		return "", badInput("%s: %v", path, err)
	}
	return day, nil
}

func decimalInput(path string, v any) (string, error) {
	var s string
	switch n := v.(type) {
	case json.Number:
		s = string(n)
	case float64:
		// The digits that were written are gone: the text of a query holds more
		// of them than this number.
		return "", badInput("%s: a Decimal with a fraction or an exponent is written as a string, so that nothing is rounded: \"%s\"", path, strconv.FormatFloat(n, 'f', -1, 64))
	default:
		var ok bool
		if s, ok = text(v); !ok {
			s, ok = integerText(v)
		}
		if !ok {
			s = ""
		}
	}
	switch {
	case len(s) > maxDecimal:
		return "", badInput("%s: a Decimal has at most %d characters, not %d", path, maxDecimal, len(s))
	case isDecimal(s):
	case hugeExponent(s):
		return "", wrongInput(path, v, fmt.Sprintf("a decimal number with an exponent of at most %d", maxExponent))
	default:
		return "", wrongInput(path, v, `a decimal number, like "12.50"`)
	}
	return s, nil
}

// hugeExponent reports whether all that is wrong with a decimal number is its
// exponent.
func hugeExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	if i < 0 || !isDecimal(s[:i]) {
		return false
	}
	digits := strings.TrimLeft(s[i+1:], "+-")
	return len(s)-i-1-len(digits) <= 1 && digits != "" && strings.Trim(digits, "0123456789") == ""
}

func (f *Field) enumInput(path string, v any) (string, error) {
	if s, ok := text(v); ok && slices.Contains(f.Enum, s) {
		return s, nil
	}
	return "", wrongInput(path, v, fmt.Sprintf("one of %v", f.Enum))
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
	return out, nil
}

func wrongInput(path string, v any, want string) error {
	return badInput("%s: expected %s, got %s", path, want, describeInput(v))
}

func describeInput(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case string:
		return quoteShort(x)
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	s := fmt.Sprint(v)
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return s
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
