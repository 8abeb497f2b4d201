package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// ReadText reads the kinds whose Go type is string.
func ReadText(f *Field, raw []byte) (string, bool) {
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

// ReadInt reads an Int.
func ReadInt(_ *Field, raw []byte) (int, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 32)
	return int(n), err == nil
}

// ReadFloat reads a Float.
func ReadFloat(_ *Field, raw []byte) (float64, bool) {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	return x, err == nil
}

// ReadBool reads a Boolean.
func ReadBool(_ *Field, raw []byte) (value, ok bool) {
	switch string(raw) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// ReadInstant reads a DateTime.
func ReadInstant(_ *Field, raw []byte) (driver.Instant, bool) {
	text, ok := plain(raw)
	if !ok {
		s, _ := rawjson.Unquote(raw) // no moment, if raw is no string
		text = []byte(s)
	}
	t, err := time.Parse(time.RFC3339, string(text))
	at := driver.InstantOf(t)
	return at, err == nil && LeastInstant <= at && at <= GreatestInstant
}

// The first and the last instant that can be read.
const (
	LeastInstant    driver.Instant = -62_167_219_200_000_000 // 0000-01-01
	GreatestInstant driver.Instant = 253_402_300_800_000_000 - 1
)

// decimalFits reports whether a text is a decimal number that is not too long to be
// read. Engines sort by longer ones, too.
func decimalFits[S string | []byte](s S) bool {
	return len(s) <= literal.MaxDecimalLength && literal.IsDecimal(s)
}

// RawScalar returns a value that is not null as JSON text for answers, itself where it is that already; false where it
// cannot be read. It is for fields of every kind but Object.
func RawScalar(f *Field, raw []byte) ([]byte, bool) {
	switch f.Kind {
	case KindString, KindID, KindRef:
		return raw, raw[0] == '"'
	case KindInt:
		_, ok := ReadInt(f, raw)
		return raw, ok
	case KindFloat:
		x, ok := ReadFloat(f, raw)
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
		at, ok := ReadInstant(f, raw)
		if !ok {
			return raw, false
		}
		var room [len("2006-01-02T15:04:05.999999Z")]byte
		if text := at.Time().AppendFormat(room[:0], time.RFC3339Nano); !bytes.Equal(text, raw[1:len(raw)-1]) {
			return rawjson.AppendString(nil, string(text)), true
		}
		return raw, true
	case KindDecimal:
		s, ok := ReadText(f, raw)
		if ok && raw[0] != '"' {
			return rawjson.AppendString(nil, s), true
		}
		return raw, ok
	case KindDate, KindEnum:
		if text, ok := plain(raw); ok {
			return raw, f.Kind == KindDate && literal.IsDate(text) || f.Kind == KindEnum && slices.Contains(f.Enum, string(text))
		}
		_, ok := ReadText(f, raw)
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

// Advice says what to declare for a value, which for a list is the whole list.
func Advice(f *Field, raw []byte) string {
	if fits := fittingType(raw); fits != "" && fits != f.TypeName(false) {
		return fmt.Sprintf("declare %s: %s, or JSON, or correct the document", f.Name, fits)
	}
	return "declare it JSON, or correct the document"
}

// fittingType names a GraphQL type that can hold the value; "" for none.
func fittingType(raw []byte) string {
	switch raw[0] {
	case '"':
		return "String"
	case 't', 'f':
		return "Boolean"
	case '[':
		inner := ""
		rawjson.Elements(raw, func(start, end int) bool {
			elem := raw[start:end]
			fits := "JSON"
			if elem[0] != '{' && elem[0] != '[' && elem[0] != 'n' {
				fits = fittingType(elem)
			}
			switch numbers := inner + fits; {
			case rawjson.IsNull(elem) || inner == fits:
			case inner == "":
				inner = fits
			case numbers == "IntFloat" || numbers == "FloatInt":
				inner = "Float"
			default:
				inner = "JSON"
			}
			return true
		})
		if inner == "" {
			inner = "JSON"
		}
		return "[" + inner + "]"
	case '{':
		return ""
	}
	if _, ok := ReadInt(nil, raw); ok {
		return "Int"
	}
	return "Float"
}

// Sample describes a value in a few words.
func Sample(raw []byte) string {
	const most = 40
	what := map[byte]string{'"': "the string", 't': "the boolean", 'f': "the boolean", 'n': "", '{': "an object", '[': "a list"}
	kind, ok := what[raw[0]]
	if !ok {
		kind = "the number"
	}
	if raw[0] == '{' || raw[0] == '[' {
		return kind
	}
	text := string(raw)
	if len(text) > most {
		runes := []rune(strings.ToValidUTF8(text[:most], ""))
		text = string(runes[:min(len(runes), most/2)]) + "…"
	}
	if kind == "" {
		return text
	}
	return kind + " " + text
}
