package plantest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/asof/asof/storage"
)

// The values that documents hold and that operations ask for. Few, so that
// filters find something, and each with something that could go wrong.
var ( // constants, but Go has no constant lists
	texts = []string{
		"plain", "", "Plain", "vaultwarden", `quote " backslash \ slash /`, "<script>&amp;</script>", "tab\tline\nnul\u0001bell\u0007",
		"\u2028 and \u2029", "ünïcödé İ", "💡🏳️‍🌈 \U0010ffff", "\u007f\u0080\ufffd", "null", "0", strings.Repeat("long ", 80), " ", "\r\n\f\b",
	}
	keys = []string{
		"alpha", "beta", "gamma", "delta", "vaultwarden", "two words", "at@sign", "100%", "a:b@3", "ключ", "💡", "quote\"d", "back\\slash", "<b>", "tab\there", "\u2028", "x/y?z#", "UPPER", "0",
	}
	authors  = []string{"ada", "bob", "guest-7141", "ünï \"q\"", "<a>\u001f"}
	messages = []string{"", "", "why not", "say \"hi\"\n</b>\u2028", "💡\t\r\f\u001b\u007f"}
	groups   = []string{"", "", "g-1", "g-<2>", "g-3/draft/01a20684-321b-78f6-b38c-78dd7dd89d4f/3/ann"}

	ints     = []string{"0", "1", "-1", "7", "42", "1000", "2147483647", "-2147483648"}
	floats   = []string{"0", "0.5", "-1.25", "1e300", "1e-7", "3", "100000000000000000000", "0.1", "5e-324", "-0.0", "1.7976931348623157e308"}
	decimals = []string{`"0"`, `"19.90"`, `"-0.10"`, `"1e-9999"`, "12.50", "7", `"100000000000000000000.000000001"`, "1E+2"}
	moments  = []string{"2024-01-31T12:00:00Z", "2024-01-31T14:00:00+02:00", "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2024-02-29T01:02:03.5-07:30", "9999-12-31T23:59:59.999999Z", "2024-01-31T12:00:00.123456789Z"}
	days     = []string{"2024-01-31", "2024-02-29", "0001-01-01", "9999-12-31", "2023-06-15"}
	// With one member at most: of several unknown ones gqlparser names any.
	wrongVariables = []string{
		`"text"`, `""`, "3", "3.0", "1e2", "-7.5", "123456789012345678901234567890", "2147483648", "true", "[]", `[1,null,"x"]`, "{}", `{"nonsense":1}`,
		`"2024-02-30"`, `[["nested"],[]]`, `[null]`, "null", "0.1", `"BASIC"`, `"asc"`,
	}
	wrongValues = []string{
		`"text"`, `""`, "3", "-7.5", "1e400", "123456789012345678901234567890", "2147483648", "true", "false", "[]", "[1,null,\"x\"]", "{}",
		`{"a":{"b":[1,2.50,{"c":null}]}}`, `"2024-02-30"`, `"yesterday"`, `[["nested"],[]]`, `[null]`, "null", `"1e99999"`, "0.1", `{"tag":5,"title":[]}`,
	}
)

// quote writes text as JSON, sometimes with more escapes than needed.
func quote(c *Choices, text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r < 0x7f && c.Chance(50):
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '/' && c.Chance(4):
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// stored makes the stored form of a field's value; "" leaves the field out.
func (w *World) stored(f *storage.Field, depth int) string {
	c := w.choices
	switch {
	case w.breaks(): // of today's schema, as old versions do
		return OneOf(c, wrongValues)
	case c.Chance(12) && (!f.NonNull || f.List || f.Default != nil || w.breaks()):
		return ""
	case c.Chance(12) && (!f.NonNull || f.Default != nil || w.breaks()):
		return "null"
	case !f.List:
		return w.scalar(f, depth)
	}
	elements := make([]string, c.Below(5))
	for i := range elements {
		switch {
		case w.breaks():
			elements[i] = OneOf(c, wrongValues)
		case c.Chance(8) && (!f.ElemNonNull && f.Kind != storage.KindRef || w.breaks()):
			elements[i] = "null"
		default:
			elements[i] = w.scalar(f, depth)
		}
	}
	return "[" + strings.Join(elements, ",") + "]"
}

// breaks decides whether something shall not fit the schema.
func (w *World) breaks() bool { return w.wild > 0 && w.choices.Chance(w.wild) }

// scalar makes one value of a field's kind.
func (w *World) scalar(f *storage.Field, depth int) string {
	c := w.choices
	switch f.Kind {
	case storage.KindInt:
		if c.Chance(3) {
			return strconv.Itoa(c.Below(5000))
		}
		return OneOf(c, ints)
	case storage.KindFloat:
		return OneOf(c, floats)
	case storage.KindBoolean:
		return OneOf(c, []string{"true", "false"})
	case storage.KindDateTime:
		return quote(c, OneOf(c, moments))
	case storage.KindDate:
		return quote(c, OneOf(c, days))
	case storage.KindDecimal:
		return OneOf(c, decimals)
	case storage.KindJSON:
		return w.json(3)
	case storage.KindEnum:
		return quote(c, OneOf(c, f.Enum))
	case storage.KindObject:
		if depth > 4 || f.Object == nil {
			return "{}"
		}
		return w.object(f.Object.Fields, depth+1)
	case storage.KindRef:
		return quote(c, OneOf(c, w.keys))
	case storage.KindID:
		return quote(c, OneOf(c, keys))
	default:
		return quote(c, OneOf(c, texts))
	}
}

// object makes an object with some of the fields, in their order or not, and
// now and then a member that no field declares.
func (w *World) object(fields []storage.Field, depth int) string {
	c := w.choices
	var members []string
	for i := range fields {
		if value := w.stored(&fields[i], depth); value != "" {
			members = append(members, quote(c, storedName(&fields[i]))+":"+value)
		}
	}
	if c.Chance(8) {
		members = append(members, `"undeclared \"one\"":`+w.json(2))
	}
	if len(members) > 1 && c.Chance(4) {
		i := c.Below(len(members))
		members[0], members[i] = members[i], members[0]
	}
	return "{" + strings.Join(members, ",") + "}"
}

func storedName(f *storage.Field) string {
	if f.Stored != "" {
		return f.Stored
	}
	return f.Name
}

// json makes any JSON value.
func (w *World) json(depth int) string {
	c := w.choices
	switch kind := c.Below(8); {
	case kind < 2 || depth == 0:
		return OneOf(c, append(append([]string{"null", "true"}, floats...), ints...))
	case kind < 4:
		return quote(c, OneOf(c, texts))
	case kind < 6:
		elements := make([]string, c.Below(4))
		for i := range elements {
			elements[i] = w.json(depth - 1)
		}
		return "[" + strings.Join(elements, " , ") + "]"
	default:
		members := make([]string, c.Below(4))
		for i := range members {
			members[i] = quote(c, fmt.Sprint(OneOf(c, texts), i)) + " : " + w.json(depth-1)
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}
