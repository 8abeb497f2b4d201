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
	if _, reserved := rawjson.HideErased(out); reserved {
		return nil, badInput("%s: a member \"asof:erased\" says that a value was erased, and cannot be written", path)
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

// readText reads the kinds whose Go type is string.
func readText(f *Field, raw []byte) (string, bool) {
	if f.Kind == KindDecimal && raw[0] != '"' {
		return string(raw), decimalFits(raw)
	}
	s, ok := rawjson.Unquote(raw)
	if !ok {
		return "", false
	}
	switch f.Kind {
	case KindDate:
		ok = literal.IsDate(s)
	case KindDecimal:
		ok = decimalFits(s)
	case KindEnum:
		ok = slices.Contains(f.Enum, s)
	default: // any text will do
	}
	return s, ok
}

func readInt(_ *Field, raw []byte) (int, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 32)
	return int(n), err == nil
}

func readFloat(_ *Field, raw []byte) (float64, bool) {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	return x, err == nil
}

func readBool(_ *Field, raw []byte) (value, ok bool) {
	switch string(raw) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

func readInstant(_ *Field, raw []byte) (driver.Instant, bool) {
	text, ok := plain(raw)
	if !ok {
		s, _ := rawjson.Unquote(raw) // no moment, if raw is no string
		text = []byte(s)
	}
	t, err := time.Parse(time.RFC3339, string(text))
	at := driver.InstantOf(t)
	return at, err == nil && leastInstant <= at && at <= greatestInstant
}

// The first and the last instant that can be read.
const (
	leastInstant    driver.Instant = -62_167_219_200_000_000 // 0000-01-01
	greatestInstant driver.Instant = 253_402_300_800_000_000 - 1
)

// decimalFits reports whether a text is a decimal number that is not too long to be
// read. Engines sort by longer ones, too.
func decimalFits[S string | []byte](s S) bool {
	return len(s) <= literal.MaxDecimalLength && literal.IsDecimal(s)
}

// RawField returns the field's value as JSON text ready to be copied into an
// answer: what the accessors return, without decoding it. Nil is null. It is
// for fields of every kind but Object.
func (o *Object) RawField(i int) ([]byte, error) {
	f := &o.typ.Fields[i]
	if f.List {
		return o.rawList(i)
	}
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	out, ok := rawScalar(f, raw)
	if !ok {
		return nil, o.mistyped(i, raw)
	}
	return out, nil
}

func (o *Object) rawList(i int) ([]byte, error) {
	f := &o.typ.Fields[i]
	same := true // every element can be copied as it is stored
	rebuilt := []byte{'['}
	build := func(elem []byte) error {
		out := []byte("null")
		if elem == nil {
			if f.ElemNonNull || f.Kind == KindRef {
				return o.nullElement(i)
			}
		} else {
			var ok bool
			if out, ok = rawScalar(f, elem); !ok {
				return o.mistyped(i, elem)
			}
			same = same && &out[0] == &elem[0]
		}
		if !same {
			rebuilt = append(append(rebuilt, out...), ',')
		}
		return nil
	}
	isList, err := o.elements(i, build)
	if err != nil || !isList {
		return nil, err
	}
	raw := o.value(i)
	switch {
	case raw == nil:
		return []byte("[]"), nil
	case same:
		return raw, nil
	}
	rebuilt = rebuilt[:1] // again, now that it is known that a copy is needed
	if _, err := o.elements(i, build); err != nil {
		return nil, err
	}
	rebuilt[len(rebuilt)-1] = ']'
	return rebuilt, nil
}

func rawScalar(f *Field, raw []byte) ([]byte, bool) {
	switch f.Kind {
	case KindString, KindID, KindRef:
		return raw, raw[0] == '"'
	case KindInt:
		_, ok := readInt(f, raw)
		return raw, ok
	case KindFloat:
		x, ok := readFloat(f, raw)
		if digits := 15; len(raw) <= digits && bytes.IndexByte(raw, 'e') < 0 {
			return raw, ok // 64 bits hold all of them
		}
		if text, err := json.Marshal(x); ok && err == nil {
			return text, true
		}
		return raw, ok
	case KindBoolean:
		return raw, raw[0] == 't' || raw[0] == 'f'
	case KindJSON:
		return raw, true
	case KindDateTime:
		at, ok := readInstant(f, raw)
		if !ok {
			return raw, false
		}
		var room [len("2006-01-02T15:04:05.999999Z")]byte
		if text := at.Time().AppendFormat(room[:0], time.RFC3339Nano); !bytes.Equal(text, raw[1:len(raw)-1]) {
			return rawjson.AppendString(nil, string(text)), true
		}
		return raw, true
	case KindDecimal:
		s, ok := readText(f, raw)
		if ok && raw[0] != '"' {
			return rawjson.AppendString(nil, s), true
		}
		return raw, ok
	case KindDate, KindEnum:
		if text, ok := plain(raw); ok {
			return raw, f.Kind == KindDate && literal.IsDate(text) || f.Kind == KindEnum && slices.Contains(f.Enum, string(text))
		}
		_, ok := readText(f, raw)
		return raw, ok
	default:
		return nil, false
	}
}

// plain returns the text of a JSON string that has no escapes, as it lies there.
func plain(raw []byte) (text []byte, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || bytes.IndexByte(raw, '\\') >= 0 {
		return nil, false
	}
	return raw[1 : len(raw)-1], true
}

func one[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) (T, error) {
	var zero T
	raw := o.value(i)
	if raw == nil {
		return zero, o.missing(i)
	}
	v, ok := read(&o.typ.Fields[i], raw)
	if !ok {
		return zero, o.mistyped(i, raw)
	}
	return v, nil
}

func opt[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) (*T, error) {
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	v, ok := read(&o.typ.Fields[i], raw)
	if !ok {
		return nil, o.mistyped(i, raw)
	}
	return &v, nil
}

func list[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) ([]T, error) {
	out := []T{}
	isList, err := o.elements(i, func(raw []byte) error {
		if raw == nil {
			return o.nullElement(i)
		}
		v, ok := read(&o.typ.Fields[i], raw)
		if !ok {
			return o.mistyped(i, raw)
		}
		out = append(out, v)
		return nil
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

func optList[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) ([]*T, error) {
	out := []*T{}
	isList, err := o.elements(i, func(raw []byte) error {
		if raw == nil {
			out = append(out, nil)
			return nil
		}
		v, ok := read(&o.typ.Fields[i], raw)
		if !ok {
			return o.mistyped(i, raw)
		}
		out = append(out, &v)
		return nil
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

// String reads a non-null String, ID, Date, Decimal, Enum or Ref.
func (o *Object) String(i int) (string, error) { return one(o, i, readText) }

// OptString reads a nullable String, ID, Date, Decimal, Enum or Ref.
func (o *Object) OptString(i int) (*string, error) { return opt(o, i, readText) }

// Strings reads a list of such values; its elements are not null.
func (o *Object) Strings(i int) ([]string, error) { return list(o, i, readText) }

// OptStrings reads a list of such values with nullable elements.
func (o *Object) OptStrings(i int) ([]*string, error) { return optList(o, i, readText) }

// Int reads a non-null Int.
func (o *Object) Int(i int) (int, error) { return one(o, i, readInt) }

// OptInt reads a nullable Int.
func (o *Object) OptInt(i int) (*int, error) { return opt(o, i, readInt) }

// Ints reads a list of Int; its elements are not null.
func (o *Object) Ints(i int) ([]int, error) { return list(o, i, readInt) }

// OptInts reads a list of nullable Int.
func (o *Object) OptInts(i int) ([]*int, error) { return optList(o, i, readInt) }

// Float reads a non-null Float.
func (o *Object) Float(i int) (float64, error) { return one(o, i, readFloat) }

// OptFloat reads a nullable Float.
func (o *Object) OptFloat(i int) (*float64, error) { return opt(o, i, readFloat) }

// Floats reads a list of Float; its elements are not null.
func (o *Object) Floats(i int) ([]float64, error) { return list(o, i, readFloat) }

// OptFloats reads a list of nullable Float.
func (o *Object) OptFloats(i int) ([]*float64, error) { return optList(o, i, readFloat) }

// Bool reads a non-null Boolean.
func (o *Object) Bool(i int) (bool, error) { return one(o, i, readBool) }

// OptBool reads a nullable Boolean.
func (o *Object) OptBool(i int) (*bool, error) { return opt(o, i, readBool) }

// Bools reads a list of Boolean; its elements are not null.
func (o *Object) Bools(i int) ([]bool, error) { return list(o, i, readBool) }

// OptBools reads a list of nullable Boolean.
func (o *Object) OptBools(i int) ([]*bool, error) { return optList(o, i, readBool) }

// Instant reads a non-null DateTime.
func (o *Object) Instant(i int) (driver.Instant, error) { return one(o, i, readInstant) }

// OptInstant reads a nullable DateTime.
func (o *Object) OptInstant(i int) (*driver.Instant, error) { return opt(o, i, readInstant) }

// Instants reads a list of DateTime; its elements are not null.
func (o *Object) Instants(i int) ([]driver.Instant, error) { return list(o, i, readInstant) }

// OptInstants reads a list of nullable DateTime.
func (o *Object) OptInstants(i int) ([]*driver.Instant, error) { return optList(o, i, readInstant) }

// JSON reads a JSON value; nil for null where the field is nullable.
func (o *Object) JSON(i int) (json.RawMessage, error) {
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	return json.RawMessage(raw), nil
}

// JSONs reads a list of JSON values; nil elements are null.
func (o *Object) JSONs(i int) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	isList, err := o.elements(i, func(raw []byte) error {
		if raw == nil && o.typ.Fields[i].ElemNonNull {
			return o.nullElement(i)
		}
		out = append(out, json.RawMessage(raw))
		return nil
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

// RefKey reads the key that a single reference holds; nil for null.
func (o *Object) RefKey(i int) (*string, error) { return opt(o, i, readText) }

// RefKeys reads the keys that a list of references holds.
func (o *Object) RefKeys(i int) ([]string, error) { return list(o, i, readText) }
