package record

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
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// encode returns the stored form of one value that is not null (of an element,
// for a list). The path is for errors.
func (f *Field) encode(path string, v any) ([]byte, error) {
	if f.Kind == KindJSON {
		return jsonInput(path, v)
	}
	value, err := f.Operand(path, v)
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
		if why := driver.KeyProblem(s); why != "" {
			return nil, fault.BadInput("%s: %s cannot be the key of a %s: it %s", path, fault.QuoteShort(s), f.Ref, why)
		}
	}
	return rawjson.AppendString(nil, s), nil
}

// Operand returns the value that a filter compares the field with.
func (f *Field) Operand(path string, v any) (driver.Value, error) {
	var value driver.Value
	var err error
	s, isText := Text(v)
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
			return nil, WrongInput(path, v, "true or false")
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
			return nil, WrongInput(path, v, fmt.Sprintf("one of %v", f.Enum))
		}
		return s, nil
	default:
		if f.Kind == KindString && !isText {
			return nil, WrongInput(path, v, "a string")
		}
		if s, err = literal.ID(v); !utf8.ValidString(s) {
			return nil, fault.BadInput("%s: the text is not valid UTF-8", path)
		}
		value = s
	}
	if err != nil {
		return nil, fault.BadInput("%s: %v", path, err)
	}
	return value, nil
}

// Text returns the text that a value of an input is; false for one that is none.
func Text(v any) (string, bool) {
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
			return nil, fault.BadInput("%s: the value cannot be written as JSON: %v", path, err)
		}
	}
	out, err := normal.Value(raw)
	if err != nil {
		return nil, fault.BadInput("%s: %v", path, err)
	}
	if _, reserved := rawjson.HideErased(out); reserved {
		return nil, fault.BadInput("%s: a member \"asof:erased\" says that a value was erased, and cannot be written", path)
	}
	if n := outOfRange(out); n != nil {
		return nil, fault.BadInput("%s: %s is too large; the largest is about 1.8e308: write it in quotes", path, Sample(n))
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

// WrongInput returns the error of a value of another kind than what is wanted.
func WrongInput(path string, v any, want string) error {
	return fault.BadInput("%s: expected %s, got %s", path, want, literal.Show(v))
}

// AsList returns the elements of a list input; a single value is a list of one,
// as GraphQL coerces it.
func AsList(v any) []any {
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
