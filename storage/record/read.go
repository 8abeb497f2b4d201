package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/diff"
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

// ViewText is ReadText of what does not change any more: a text without escapes is not copied.
func ViewText(f *Field, raw []byte) (string, bool) {
	if f.Kind == KindString {
		if text, ok := plain(raw); ok {
			return rawjson.View(text), true
		}
	}
	return ReadText(f, raw)
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
		if text := asString.Replace(fits); text != fits && text != f.TypeName(false) {
			fits += ", or " + text
		}
		return fmt.Sprintf("declare %s: %s, or JSON, or correct the document", f.Name, fits)
	}
	return "declare it JSON, or correct the document"
}

// asString replaces the scalars of which a text may be by what holds any text.
var asString = strings.NewReplacer("Decimal", "String", "DateTime", "String", "Date", "String")

// fittingType names a GraphQL type that can hold the value; "" for none.
func fittingType(raw []byte) string {
	switch raw[0] {
	case '"':
		text, _ := plain(raw)
		if _, err := literal.DateTime(string(text)); err == nil {
			return "DateTime"
		}
		switch {
		case literal.IsDecimal(text):
			return "Decimal"
		case literal.IsDate(text):
			return "Date"
		}
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
			case asString.Replace(inner) == asString.Replace(fits):
				inner = "String"
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

// Span is a part of a stored object; 0,0 where the field is missing.
type Span struct{ start, end uint32 }

// At returns the value that a span marks; nil where there is none.
func (s Span) At(raw []byte) []byte {
	if s.end == 0 {
		return nil
	}
	return raw[s.start:s.end:s.end]
}

// Index finds the declared members of an object.
func Index(t *ObjectType, raw []byte) []Span {
	spans := make([]Span, len(t.Fields))
	next := 0
	rawjson.Members(raw, func(name []byte, start, end int) bool {
		if i := t.place(name, next); i >= 0 {
			spans[i] = Span{uint32(start), uint32(end)}
			next = i + 1
		}
		return true
	})
	return spans
}

// Visible returns a field's stored value as users see it: nested objects in the
// names of the GraphQL schema, without what it does not declare. Nil stays nil.
func (f *Field) Visible(raw []byte) []byte {
	if len(raw) == 0 || f.isVisible(raw) {
		return raw // what was erased stays told apart until it is shown
	}
	return f.appendVisible(make([]byte, 0, len(raw)), raw)
}

// isVisible reports whether a value is as users see it, as most are: it may be long, and need not be copied.
func (f *Field) isVisible(raw []byte) bool {
	switch {
	case f.Kind != KindObject, rawjson.Erased(raw):
		return true
	case !f.List || len(raw) == 0 || raw[0] != '[':
		return f.Object.isVisible(raw)
	}
	return rawjson.Elements(raw, func(start, end int) bool { return f.Object.isVisible(raw[start:end]) })
}

func (o *ObjectType) isVisible(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '{' {
		return true
	}
	next := 0
	return rawjson.Members(raw, func(name []byte, start, end int) bool {
		i := o.place(name, next)
		next = i + 1
		return i >= 0 && string(name) == o.Fields[i].Name && o.Fields[i].isVisible(raw[start:end])
	})
}

func (f *Field) appendVisible(dst, raw []byte) []byte {
	switch {
	case f.Kind != KindObject, rawjson.Erased(raw):
		return append(dst, raw...)
	case !f.List || len(raw) == 0 || raw[0] != '[':
		return f.Object.appendVisible(dst, raw)
	}
	dst = append(dst, '[')
	first := true
	rawjson.Elements(raw, func(start, end int) bool {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = f.Object.appendVisible(dst, raw[start:end])
		return true
	})
	return append(dst, ']')
}

// Visible returns a stored object as users see it; what is not an object is
// returned as it is.
func (o *ObjectType) Visible(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	if !o.isVisible(raw) {
		raw = o.appendVisible(make([]byte, 0, len(raw)), raw)
	}
	shown, _ := rawjson.HideErased(raw)
	return slices.Clip(shown)
}

func (o *ObjectType) appendVisible(dst, raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return append(dst, raw...)
	}
	dst = append(dst, '{')
	next := 0
	rawjson.Members(raw, func(name []byte, start, end int) bool {
		i := o.place(name, next)
		if i < 0 {
			return true
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		next = i + 1
		f := &o.Fields[i]
		dst = append(rawjson.AppendString(dst, f.Name), ':')
		dst = f.appendVisible(dst, raw[start:end])
		return true
	})
	return append(dst, '}')
}

// Change is a visible change of a field.
type Change struct {
	diff.Change
	Field *Field
}

// Changes yields the visible changes between two states of an object, in the order of
// the schema, as far as they are wanted. Nil is a state without fields.
func (o *ObjectType) Changes(old, now []byte) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		oldAt, nowAt := Index(o, old), Index(o, now)
		for i := range o.Fields {
			f := &o.Fields[i]
			a, b := oldAt[i].At(old), nowAt[i].At(now)
			if string(a) == string(b) && (a == nil) == (b == nil) {
				continue
			}
			for c := range diff.Values(diff.Join("", f.Name), f.Visible(a), f.Visible(b)) {
				if !yield(Change{c, f}) {
					return
				}
			}
		}
	}
}

// Today returns an object in the form that is declared: itself, where it is in that.
func (o *ObjectType) Today(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	var changed []rawjson.Value // at once: a document may be large
	find := func(name string) []byte {
		for _, m := range changed {
			if m.Name == name {
				return m.Raw
			}
		}
		return rawjson.Find(raw, []string{name})
	}
	set := func(name string, value []byte) {
		for i := range changed {
			if changed[i].Name == name {
				changed[i].Raw = value
				return
			}
		}
		changed = append(changed, rawjson.Value{Name: name, Raw: value})
	}
	for _, i := range o.was {
		f := &o.Fields[i]
		was := find(f.Stored)
		is := was
		for _, name := range f.Was.Members {
			member := find(name)
			if member == nil {
				continue
			}
			if !rawjson.IsNull(member) && rawjson.Find(is, []string{name}) == nil {
				is = rawjson.Set(is, []string{name}, member)
			}
			set(name, nil)
		}
		if is = f.today(is); !bytes.Equal(is, was) {
			set(f.Stored, is)
		}
	}
	if changed == nil {
		return raw
	}
	return rawjson.Put(raw, changed...)
}

func (f *Field) today(raw []byte) []byte {
	switch {
	case rawjson.IsNull(raw), rawjson.Erased(raw):
		return raw
	case !f.List:
		return f.elementToday(raw)
	case raw[0] != '[' && f.Was.Single:
		return append(append([]byte{'['}, f.elementToday(raw)...), ']')
	}
	out := make([]byte, 0, len(raw))
	rawjson.Elements(raw, func(start, end int) bool {
		out = append(append(out, ','), f.elementToday(raw[start:end])...)
		return true
	})
	if len(out) == 0 {
		return raw
	}
	out[0] = '['
	return append(out, ']')
}

func (f *Field) elementToday(raw []byte) []byte {
	switch {
	case f.Kind == KindObject:
		return f.Object.Today(raw)
	case f.Was.Enum == nil:
	default:
		if was, ok := rawjson.Unquote(raw); ok && f.Was.Enum[was] != "" {
			return rawjson.AppendString(nil, f.Was.Enum[was])
		}
	}
	return raw
}
