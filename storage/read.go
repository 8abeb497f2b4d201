package storage

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// readText reads the kinds whose Go type is string.
func readText(f *Field, raw []byte) (string, bool) {
	if f.Kind == KindDecimal && raw[0] != '"' {
		return string(raw), isDecimal(raw)
	}
	s, ok := rawjson.Unquote(raw)
	if !ok {
		return "", false
	}
	switch f.Kind {
	case KindDate:
		ok = isDate(s)
	case KindDecimal:
		ok = isDecimal(s)
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
	s, ok := rawjson.Unquote(raw)
	if !ok {
		return 0, false
	}
	return parseInstant(s)
}

// parseInstant reads RFC 3339 with an offset as it may lie in a store: earlier
// programs accepted more than is written today, which package literal checks.
func parseInstant(s string) (driver.Instant, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UTC().Year() < 0 || t.UTC().Year() > 9999 {
		return 0, false
	}
	return driver.InstantOf(t), true
}

// The first and the last instant that parseInstant returns.
const (
	leastInstant    driver.Instant = -62_167_219_200_000_000 // 0000-01-01
	greatestInstant driver.Instant = 253_402_300_800_000_000 - 1
)

// isDate reports whether s is a day that exists, as "2006-01-02". As with
// instants, stores may hold a year 0000, which is not accepted any more.
func isDate[S string | []byte](s S) bool {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return false
	}
	year, ok1 := digits(s[:4])
	month, ok2 := digits(s[5:7])
	day, ok3 := digits(s[8:])
	if !ok1 || !ok2 || !ok3 || month < 1 || month > 12 || day < 1 {
		return false
	}
	if day <= 28 {
		return true
	}
	return day <= time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func digits[S string | []byte](s S) (n int, ok bool) {
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + int(c)
	}
	return n, true
}

// maxDecimal bounds the text of a Decimal, and maxExponent its exponent, so that
// no comparison has to write out a hostile number.
const (
	maxDecimal  = 1000
	maxExponent = 9999
)

// isDecimal reports whether s is a decimal number as JSON writes them, and not
// too long.
func isDecimal[S string | []byte](s S) bool { return len(s) <= maxDecimal && isAnyDecimal(s) }

// isAnyDecimal is isDecimal for numbers of any length, by which engines sort.
func isAnyDecimal[S string | []byte](s S) bool {
	n := len(s)
	if n == 0 {
		return false
	}
	i := 0
	run := func() bool {
		start := i
		for i < n && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i > start
	}
	if s[i] == '-' {
		i++
	}
	start := i
	if !run() || (s[start] == '0' && i > start+1) {
		return false
	}
	if i < n && s[i] == '.' {
		if i++; !run() {
			return false
		}
	}
	if i < n && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < n && (s[i] == '+' || s[i] == '-') {
			i++
		}
		start = i
		if !run() {
			return false
		}
		if exp, err := strconv.Atoi(string(s[start:i])); err != nil || exp > maxExponent {
			return false
		}
	}
	return i == n
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
		if isUTC(raw) {
			return raw, true
		}
		at, ok := readInstant(f, raw)
		if text := at.String(); ok && text != string(raw[1:len(raw)-1]) {
			return rawjson.AppendString(nil, text), true
		}
		return raw, ok
	case KindDecimal:
		s, ok := readText(f, raw)
		if ok && raw[0] != '"' {
			return rawjson.AppendString(nil, s), true
		}
		return raw, ok
	case KindDate, KindEnum:
		if text, ok := plain(raw); ok {
			return raw, f.Kind == KindDate && isDate(text) || f.Kind == KindEnum && slices.Contains(f.Enum, string(text))
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

// isUTC reports whether a JSON string is an instant in the form in which they
// are written: "2006-01-02T15:04:05Z", with at most six digits of the second's
// fraction, the last of which is not 0. Other forms of an instant are converted.
func isUTC(raw []byte) bool {
	text, ok := plain(raw)
	n := len(text)
	if !ok || n < 20 || n > 27 || n == 21 || text[10] != 'T' || text[13] != ':' || text[16] != ':' || text[n-1] != 'Z' || !isDate(text[:10]) {
		return false
	}
	hour, ok1 := digits(text[11:13])
	minute, ok2 := digits(text[14:16])
	second, ok3 := digits(text[17:19])
	if !ok1 || !ok2 || !ok3 || hour > 23 || minute > 59 || second > 59 {
		return false
	}
	if n == 20 {
		return true
	}
	_, ok = digits(text[20 : n-1])
	return ok && text[19] == '.' && text[n-2] != '0'
}
