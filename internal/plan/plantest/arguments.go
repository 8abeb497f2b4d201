package plantest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage/driver"
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
