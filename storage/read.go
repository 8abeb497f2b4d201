package storage

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

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
		if f.NonNull {
			return nil, o.missing(i)
		}
		return nil, nil
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
