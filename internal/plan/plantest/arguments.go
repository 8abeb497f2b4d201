package plantest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// place is where a value stands, for values that mean something there.
type place struct {
	typ  string // of the documents that it is about; "": any
	name string // of the argument or the member
}

// value makes a value for a place of a type: mostly as a literal, sometimes as
// a variable, which it then declares.
func (g *generator) value(t *ast.Type, at place, depth int) value {
	c := g.choices
	var v value
	switch {
	case g.faulty && c.Chance(8):
		v = g.wrong()
	case !t.NonNull && c.Chance(25):
		v = literal("null")
	case t.Elem != nil && c.Chance(8): // a single value stands for a list of it
		v = g.plain(t.Elem, at, depth)
	case t.Elem != nil:
		elements := make([]value, c.Below(4))
		for i := range elements {
			elements[i] = g.value(t.Elem, at, depth)
		}
		v = listOf(elements...)
	default:
		v = g.plain(t, at, depth)
	}
	if v.hasVariables() || !c.Chance(5) {
		return v
	}
	return g.variableFor(t, v, g.plain(t, at, depth+2))
}

func (v value) hasVariables() bool {
	if v.kind == variableValue {
		return true
	}
	for _, e := range v.elements {
		if e.hasVariables() {
			return true
		}
	}
	return false
}

// wrong makes a value that fits hardly anywhere.
func (g *generator) wrong() value {
	return OneOf(g.choices, []value{
		literal("null"), literal("3"), literal("-2.5"), literal("99999999999"), literal("true"), stringOf("text"), stringOf(""), enumOf("NONSENSE"),
		listOf(literal("null")), listOf(),
		{kind: objectValue, names: []string{"nonsense"}, elements: []value{literal("1")}},
		{kind: objectValue},
	})
}

// variableFor declares a variable with a value, and gives it that value in the
// request, or leaves it to its default. Another time it has another value.
func (g *generator) variableFor(t *ast.Type, v, another value) value {
	c := g.choices
	name := "v" + strconv.Itoa(len(g.declared)+1)
	d := declared{name: name, typ: t.String()}
	if !t.NonNull && c.Chance(6) && v.text != "null" {
		d.typ += "!"
	}
	required := strings.HasSuffix(d.typ, "!")
	if c.Chance(4) && !(required && v.text == "null") {
		def := v
		d.def = &def
	}
	text := v.json()
	switch {
	case g.faulty && c.Chance(4):
		text = OneOf(c, wrongVariables)
	case g.faulty && c.Chance(8), d.def != nil && c.Chance(2), !required && c.Chance(6):
		text = "" // not there
	case !required && c.Chance(8):
		text = "null"
	}
	g.declared = append(g.declared, d)
	others := []string{text, v.json()}
	if !another.hasVariables() {
		others = append(others, another.json(), another.json())
	}
	if !required {
		others = append(others, "", "null")
	}
	g.op.variables = append(g.op.variables, assigned{name, text, others})
	return variable(name)
}

// plain makes a value of a named type.
func (g *generator) plain(t *ast.Type, at place, depth int) value {
	if t.Elem != nil {
		return g.value(t, at, depth)
	}
	c := g.choices
	switch t.NamedType {
	case "ID":
		return g.id(at)
	case "Int":
		return g.int(at)
	case "Float":
		return literal(OneOf(c, floats))
	case "Boolean":
		return literal(OneOf(c, []string{"true", "false"}))
	case "DateTime":
		return stringOf(g.moment())
	case "Date":
		return stringOf(OneOf(c, days))
	case "Decimal":
		text := OneOf(c, decimals)
		if text[0] == '"' {
			return stringOf(strings.Trim(text, `"`))
		}
		return literal(text)
	case "String":
		return g.text(at)
	}
	def := g.schema.Types[t.NamedType]
	switch {
	case def == nil || def.Kind == ast.Scalar:
		return OneOf(c, []value{literal("null"), literal("7"), stringOf("x"), listOf(literal("1")), {kind: objectValue, names: []string{"a"}, elements: []value{stringOf("b")}}})
	case def.Kind == ast.Enum:
		return enumOf(OneOf(c, def.EnumValues).Name)
	default:
		return g.input(def, at, depth)
	}
}

// input makes an input object: what it needs and one or two members more.
func (g *generator) input(def *ast.Definition, at place, depth int) value {
	c := g.choices
	if typ, ok := strings.CutSuffix(def.Name, "Where"); ok && g.world.typeOf(typ) != nil {
		at.typ = typ
	}
	chosen := map[int]bool{}
	some := 1 + c.Below(2)
	if c.Chance(30) {
		some = 0
	}
	if def.Directives.ForName("oneOf") != nil && !g.faulty {
		some = 1
	}
	for range some {
		i := c.Below(len(def.Fields))
		nested := g.schema.Types[def.Fields[i].Type.Name()]
		if depth > 2 && nested != nil && nested.Kind == ast.InputObject && strings.HasSuffix(nested.Name, "Where") {
			continue
		}
		chosen[i] = true
	}
	v := value{kind: objectValue}
	for i, f := range def.Fields {
		if !chosen[i] && (!f.Type.NonNull || f.DefaultValue != nil) {
			continue
		}
		inner := at
		inner.name = f.Name
		if member := g.value(f.Type, inner, depth+1); f.Type.NonNull || member.text != "null" || c.Chance(4) {
			v.names = append(v.names, f.Name)
			v.elements = append(v.elements, member)
		}
	}
	if g.faulty && c.Chance(20) {
		v.names = append(v.names, "nonsense")
		v.elements = append(v.elements, literal("1"))
	}
	return v
}

// id makes an ID: a global one where it is asked for, otherwise a key.
func (g *generator) id(at place) value {
	c := g.choices
	switch at.name {
	case "id", "ids":
		return stringOf(g.globalID())
	case "author", "authors":
		return stringOf(OneOf(c, authors))
	case "key":
		if docs := g.world.docsOf(at.typ); len(docs) > 0 && !c.Chance(8) {
			return stringOf(OneOf(c, docs).key)
		}
	}
	switch c.Below(30) {
	case 0:
		return literal("7") // IDs may be integers
	case 1:
		return stringOf(OneOf(c, []string{"", "nobody", "a\u0000b", strings.Repeat("k", 600), " alpha"}))
	}
	return stringOf(OneOf(c, keys))
}

// globalID makes the id of a document that is there, or was, or something like
// it.
func (g *generator) globalID() string {
	c := g.choices
	d := OneOf(c, g.world.docs)
	key := strings.NewReplacer("%", "%25", "@", "%40", "\t", "%09").Replace(d.key)
	id := d.typ.Name + ":" + key
	switch c.Below(12) {
	case 0, 1, 2:
		id += "@" + strconv.Itoa(1+c.Below(len(d.times)+2))
	case 3:
		if g.faulty || c.Chance(4) {
			id = OneOf(c, []string{
				"", ":", "nonsense", "Nonsense:x", d.typ.Name, id + "@0", id + "@-1", id + "@1.5", id + "@", id + "@1@2", id + "%", id + "%zz", d.typ.Name + ":",
				id + "@99999999999999999999", strings.ToLower(id), d.typ.Name + ":" + strings.Repeat("k", 600), d.typ.Name + ":\u0000",
			})
		}
	case 4:
		id = d.typ.Name + ":nobody"
	}
	return id
}

// int makes an Int.
func (g *generator) int(at place) value {
	c := g.choices
	n := 0
	switch at.name {
	case "first", "last":
		switch n = c.Below(8); {
		case n == 6 && c.Chance(3):
			n = OneOf(c, []int{-1, 501, 500, -2147483648})
		case n == 7:
			n = 20
		}
	case "version", "expectedVersion":
		n = 1 + c.Below(6)
		if docs := g.world.docsOf(at.typ); len(docs) > 0 {
			n = 1 + c.Below(len(OneOf(c, docs).times)+1)
		}
		if c.Chance(25) {
			n = OneOf(c, []int{0, -1, 2147483647, 1000})
		}
	default:
		if c.Chance(2) {
			n = c.Below(5000)
			break
		}
		return literal(OneOf(c, ints))
	}
	return literal(strconv.Itoa(n))
}

// text makes a String: a part of a text that documents hold, mostly.
func (g *generator) text(at place) value {
	c := g.choices
	switch at.name {
	case "cursor":
		if len(g.cursors) > 0 {
			return stringOf(OneOf(c, g.cursors))
		}
		fallthrough
	case "after", "before":
		return stringOf(OneOf(c, append([]string{"", "nonsense", "WzFd", "WzEsIngiLDEsInkiXQ", "e30="}, g.lists.anyCursors()...)))
	case "fields", "field":
		return stringOf(OneOf(c, []string{"name", "tags", "nonsense"}))
	}
	text := OneOf(c, texts)
	switch runes := []rune(text); {
	case c.Chance(3) && len(runes) > 3:
		from := c.Below(len(runes) - 2)
		text = string(runes[from : from+1+c.Below(2)])
	case c.Chance(6):
		text = strings.ToUpper(text)
	}
	return stringOf(text)
}

// moment makes a DateTime: mostly one at which something happened, or a
// microsecond beside it.
func (g *generator) moment() string {
	c := g.choices
	at := OneOf(c, g.world.times)
	switch c.Below(12) {
	case 0:
		at--
	case 1:
		at++
	case 2:
		at = g.world.engine.instant()
	case 3:
		at = beginning - driver.Instant(c.Below(2))
	case 4:
		if g.faulty || c.Chance(4) {
			return OneOf(c, []string{
				"", "yesterday", "2024-01-31", "2024-01-31T12:00:00", "2024-01-31T25:00:00Z", "2024-01-31T12:00:00.1234567Z", "2024-01-31T12:00:00-00:00",
				"9999-12-31T23:59:59Z", "2999-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2024-06-30T23:59:60Z",
			})
		}
	}
	t := at.Time()
	switch c.Below(8) {
	case 0:
		return t.In(time.FixedZone("", 2*60*60)).Format(time.RFC3339Nano)
	case 1:
		return t.Format("2006-01-02T15:04:05.000000Z07:00")
	}
	return fmt.Sprint(at)
}

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
func (w *World) stored(f *record.Field, depth int) string {
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
		case c.Chance(8) && (!f.ElemNonNull && f.Kind != record.KindRef || w.breaks()):
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
func (w *World) scalar(f *record.Field, depth int) string {
	c := w.choices
	switch f.Kind {
	case record.KindInt:
		if c.Chance(3) {
			return strconv.Itoa(c.Below(5000))
		}
		return OneOf(c, ints)
	case record.KindFloat:
		return OneOf(c, floats)
	case record.KindBoolean:
		return OneOf(c, []string{"true", "false"})
	case record.KindDateTime:
		return quote(c, OneOf(c, moments))
	case record.KindDate:
		return quote(c, OneOf(c, days))
	case record.KindDecimal:
		return OneOf(c, decimals)
	case record.KindJSON:
		return w.json(3)
	case record.KindEnum:
		return quote(c, OneOf(c, f.Enum))
	case record.KindObject:
		if depth > 4 || f.Object == nil {
			return "{}"
		}
		return w.object(f.Object.Fields, depth+1)
	case record.KindRef:
		return quote(c, OneOf(c, w.keys))
	case record.KindID:
		return quote(c, OneOf(c, keys))
	default:
		return quote(c, OneOf(c, texts))
	}
}

// object makes an object with some of the fields, in their order or not, and
// now and then a member that no field declares.
func (w *World) object(fields []record.Field, depth int) string {
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

func storedName(f *record.Field) string {
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
