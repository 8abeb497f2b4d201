package plantest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage/rawjson"
)

// Operation is a GraphQL request, kept as a tree so that it can be made smaller.
type Operation struct {
	definitions []*definition
	variables   []assigned
	name        string // operationName
	named       bool   // there is one
	flat        bool   // printed on one line
	broken      string // text that is added behind the document
	persisted   persistence
}

// persistence says how an operation uses persisted queries.
type persistence int

const (
	notPersisted persistence = iota
	persists                 // the query is sent with its hash
	persisted                // the hash is sent alone
)

// definition is an operation or a fragment.
type definition struct {
	kind       string // query, mutation, subscription, fragment; "": a query without a head
	name       string
	on         string // of a fragment
	declared   []declared
	directives []directive
	set        []*selection
}

// declared is a variable's definition.
type declared struct {
	name, typ string
	def       *value // its default; nil: none
}

// assigned is a variable's value in the request, as JSON; "": it is left out.
// Others are values for the same request another time.
type assigned struct {
	name, text string
	others     []string
}

// selection is a field, an inline fragment or the spread of a named one.
type selection struct {
	alias, name string // of a field
	args        []argument
	inline      bool
	on          string // of an inline fragment; may be empty
	spread      string // the name of a fragment
	directives  []directive
	set         []*selection
}

type argument struct {
	name  string
	value value
}

type directive struct {
	name string
	args []argument
}

// value is an input value, which GraphQL and JSON write differently.
type value struct {
	kind     valueKind
	text     string   // of a literal (number, boolean, null), string, enum value, variable
	elements []value  // of a list or an object
	names    []string // of an object's members
}

type valueKind int

const (
	literalValue valueKind = iota
	stringValue
	enumValue
	variableValue
	listValue
	objectValue
)

func literal(text string) value  { return value{kind: literalValue, text: text} }
func stringOf(text string) value { return value{kind: stringValue, text: text} }
func enumOf(name string) value   { return value{kind: enumValue, text: name} }
func variable(name string) value { return value{kind: variableValue, text: name} }
func listOf(elements ...value) value {
	return value{kind: listValue, elements: elements}
}

// write writes the value as GraphQL does, or as JSON.
func (v value) write(b *strings.Builder, asJSON bool) {
	switch v.kind {
	case literalValue:
		b.WriteString(v.text)
	case enumValue:
		if asJSON {
			b.WriteString(`"` + v.text + `"`)
		} else {
			b.WriteString(v.text)
		}
	case stringValue:
		b.Write(rawjson.AppendString(nil, v.text))
	case variableValue:
		b.WriteString("$" + v.text)
	case listValue:
		b.WriteByte('[')
		for i, e := range v.elements {
			if i > 0 {
				b.WriteString(", ")
			}
			e.write(b, asJSON)
		}
		b.WriteByte(']')
	case objectValue:
		b.WriteByte('{')
		for i, e := range v.elements {
			if i > 0 {
				b.WriteString(", ")
			}
			if asJSON {
				b.Write(rawjson.AppendString(nil, v.names[i]))
			} else {
				b.WriteString(v.names[i])
			}
			b.WriteString(": ")
			e.write(b, asJSON)
		}
		b.WriteByte('}')
	}
}

func (v value) json() string {
	var b strings.Builder
	v.write(&b, true)
	return b.String()
}

// Query is the text of the document.
func (o *Operation) Query() string {
	p := printer{flat: o.flat}
	for i, d := range o.definitions {
		if i > 0 {
			p.line(0)
		}
		p.definition(d)
	}
	p.b.WriteString(o.broken)
	return p.b.String()
}

// variablesJSON is the object of the variables; "" where there are none.
func (o *Operation) variablesJSON() string {
	var b strings.Builder
	for _, v := range o.variables {
		if v.text == "" {
			continue
		}
		b.WriteString(",")
		b.Write(rawjson.AppendString(nil, v.name))
		b.WriteString(":" + v.text)
	}
	if b.Len() == 0 {
		return ""
	}
	return "{" + b.String()[1:] + "}"
}

// vary returns the same document with other values for its variables, or with
// another of its operations to be executed.
func (o *Operation) vary(c *Choices) *Operation {
	other := o.clone()
	for i := range other.variables {
		if v := &other.variables[i]; c.Chance(2) {
			v.text = OneOf(c, v.others)
		}
	}
	if o.persisted == persists {
		other.persisted = persisted
	}
	if o.named && len(o.definitions) > 1 && c.Chance(2) {
		other.name = OneOf(c, o.definitions).name
	}
	return other
}

// Body is the request that POST sends.
func (o *Operation) Body() string {
	query := o.Query()
	body := `{"query":` + string(rawjson.AppendString(nil, query))
	if o.persisted == persisted {
		body = `{"query":""`
	}
	if o.persisted != notPersisted {
		body += fmt.Sprintf(`,"extensions":{"persistedQuery":{"version":1,"sha256Hash":"%x"}}`, sha256.Sum256([]byte(query)))
	}
	if text := o.variablesJSON(); text != "" {
		body += `,"variables":` + text
	}
	if o.named {
		name, err := json.Marshal(o.name)
		if err == nil { // it is a string
			body += `,"operationName":` + string(name)
		}
	}
	return body + "}"
}

// String shows the operation to people.
func (o *Operation) String() string {
	text := o.Query()
	if v := o.variablesJSON(); v != "" {
		text += "\nvariables: " + v
	}
	if o.named {
		text += "\noperationName: " + o.name
	}
	return text
}

// mutates says that the document has an operation that is not a query.
func (o *Operation) mutates() bool {
	return slices.ContainsFunc(o.definitions, func(d *definition) bool {
		return d.kind == "mutation" || d.kind == "subscription"
	})
}

// printer writes a document.
type printer struct {
	b    strings.Builder
	flat bool
}

func (p *printer) line(indent int) {
	if p.flat {
		p.b.WriteByte(' ')
		return
	}
	p.b.WriteByte('\n')
	for range indent {
		p.b.WriteString("  ")
	}
}

func (p *printer) definition(d *definition) {
	switch d.kind {
	case "":
	case "fragment":
		p.b.WriteString("fragment " + d.name + " on " + d.on)
	default:
		p.b.WriteString(d.kind)
		if d.name != "" {
			p.b.WriteString(" " + d.name)
		}
	}
	if len(d.declared) > 0 {
		p.b.WriteString("(")
		for i, v := range d.declared {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.b.WriteString("$" + v.name + ": " + v.typ)
			if v.def != nil {
				p.b.WriteString(" = ")
				v.def.write(&p.b, false)
			}
		}
		p.b.WriteString(")")
	}
	p.directives(d.directives)
	p.set(d.set, 0)
}

func (p *printer) directives(ds []directive) {
	for _, d := range ds {
		p.b.WriteString(" @" + d.name)
		p.arguments(d.args)
	}
}

func (p *printer) arguments(args []argument) {
	if len(args) == 0 {
		return
	}
	p.b.WriteString(argumentsText(args))
}

func argumentsText(args []argument) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.name + ": ")
		a.value.write(&b, false)
	}
	return "(" + b.String() + ")"
}

func (p *printer) set(set []*selection, indent int) {
	p.b.WriteString(" {")
	for _, s := range set {
		p.line(indent + 1)
		switch {
		case s.spread != "":
			p.b.WriteString("..." + s.spread)
		case s.inline:
			p.b.WriteString("...")
			if s.on != "" {
				p.b.WriteString(" on " + s.on)
			}
		default:
			if s.alias != "" {
				p.b.WriteString(s.alias + ": ")
			}
			p.b.WriteString(s.name)
			p.arguments(s.args)
		}
		p.directives(s.directives)
		if len(s.set) > 0 {
			p.set(s.set, indent+1)
		}
	}
	p.line(indent)
	p.b.WriteString("}")
}

// lists are pages that were read to know their cursors. A cursor is good only
// with the arguments of the list that it comes from.
type lists struct {
	roots    []list
	versions []list
}

// anyCursors are cursors of lists with other arguments, most likely.
func (l *lists) anyCursors() []string {
	var all []string
	for _, one := range l.roots {
		if len(one.cursors) > 0 {
			all = append(all, one.cursors[0])
		}
	}
	return all
}

// list is one: a root field with connections, or the versions of a document.
type list struct {
	field    string // the root field
	of       []argument
	versions bool       // it is the field versions of that document
	args     []argument // without a page's
	cursors  []string
}

// paging are the arguments that choose a page of a list.
func paging(name string) bool {
	return name == "first" || name == "last" || name == "after" || name == "before"
}

// arguments chooses the arguments of a field.
func (g *generator) arguments(s *selection, f *ast.FieldDefinition) {
	c := g.choices
	at := place{typ: typeBehind(f.Type.Name())}
	var known []list
	g.cursors = nil
	for _, l := range g.lists.roots {
		if l.field == f.Name {
			known = append(known, l)
		}
	}
	page := false
	for _, a := range f.Arguments {
		page = page || a.Name == "after"
	}
	if page && len(known) > 0 && c.Chance(2) {
		g.pageOf(s, f, OneOf(c, known))
		return
	}
	size := page && !c.Chance(8) // most pages are small
	ambiguous := c.Chance(25)
	backward := c.Chance(3)
	for _, a := range f.Arguments {
		at.name = a.Name
		switch {
		case a.Name == "first" && size && !backward, a.Name == "last" && size && backward:
		case paging(a.Name) && !ambiguous && (a.Name == "first" || a.Name == "last"):
			continue
		case (a.Name == "after" || a.Name == "before") && !c.Chance(20):
			continue
		case a.Name == "tag" && !c.Chance(6): // what is read by one is not planned
			continue
		case a.Name == "version" && hasArgument(s.args, "asOf") && !ambiguous:
			continue
		case a.Type.NonNull && !(g.faulty && c.Chance(12)):
		case !c.Chance(3):
			continue
		}
		s.args = append(s.args, argument{a.Name, g.value(a.Type, at, 0)})
	}
	if len(s.args) > 1 && c.Chance(6) { // in another order
		last := len(s.args) - 1
		s.args[0], s.args[last] = s.args[last], s.args[0]
	}
}

// pageOf chooses a page of a list whose cursors are known.
func (g *generator) pageOf(s *selection, f *ast.FieldDefinition, l list) {
	c := g.choices
	s.args = append(s.args, l.args...)
	add := func(name string, at place) {
		if a := f.Arguments.ForName(name); a != nil {
			s.args = append(s.args, argument{name, g.value(a.Type, at, 0)})
		}
	}
	g.cursors = l.cursors
	size, cursor, other := "first", "after", "before"
	if c.Chance(3) {
		size, cursor, other = "last", "before", "after"
	}
	if !c.Chance(6) {
		add(size, place{name: size})
	}
	add(cursor, place{name: "cursor"})
	if c.Chance(8) {
		add(other, place{name: "cursor"})
	}
}

func hasArgument(args []argument, name string) bool {
	for _, a := range args {
		if a.name == name {
			return true
		}
	}
	return false
}

// typeBehind is the type of documents that a field's type is about.
func typeBehind(name string) string {
	for _, suffix := range []string{"VersionConnection", "Connection", "History"} {
		if typ, ok := strings.CutSuffix(name, suffix); ok {
			return typ
		}
	}
	return name
}

// probe makes an operation that reads the cursors of a list: without variables,
// so that the arguments can be used again.
func probe(c *Choices, w *World, schema *ast.Schema, versions bool) (*Operation, list) {
	g := &generator{choices: c, world: w, schema: schema, lists: &lists{}, op: &Operation{}, meaning: map[string]string{}}
	var fields []*ast.FieldDefinition
	for _, f := range schema.Query.Fields {
		connection := f.Arguments.ForName("where") != nil && f.Arguments.ForName("asOf") != nil
		document := f.Arguments.ForName("key") != nil && f.Arguments.ForName("version") != nil
		if versions && document || !versions && connection {
			fields = append(fields, f)
		}
	}
	f := OneOf(c, fields)
	l := list{field: f.Name, versions: versions}
	at := place{typ: typeBehind(f.Type.Name())}
	paged := &selection{name: f.Name}
	outer := paged
	if versions {
		l.of = []argument{{"key", g.id(place{at.typ, "key"})}}
		outer.args = l.of
		paged = &selection{name: "versions"}
		outer.set = []*selection{paged}
		f = schema.Types[f.Type.Name()].Fields.ForName("versions")
	}
	for _, a := range f.Arguments {
		if paging(a.Name) || a.Name == "tag" || c.Chance(2) {
			continue
		}
		at.name = a.Name
		if v := g.value(a.Type, at, 0); !v.hasVariables() {
			l.args = append(l.args, argument{a.Name, v})
		}
	}
	paged.args = append(append([]argument(nil), l.args...), argument{"first", literal("8")})
	paged.set = []*selection{{name: "edges", set: []*selection{{name: "cursor"}}}}
	return &Operation{definitions: []*definition{{kind: "query", set: []*selection{outer}}}}, l
}

// versionsPage asks for a page of the versions of a document whose cursors are
// known.
func (g *generator) versionsPage() *selection {
	l := OneOf(g.choices, g.lists.versions)
	f := g.schema.Query.Fields.ForName(l.field)
	def := g.schema.Types[f.Type.Name()]
	inner := &selection{name: "versions"}
	g.pageOf(inner, def.Fields.ForName("versions"), l)
	inner.set = g.set(g.schema.Types[def.Fields.ForName("versions").Type.Name()], 2)
	return g.aliased(&selection{name: l.field, args: l.of, set: []*selection{inner}}, "Query", 4)
}
