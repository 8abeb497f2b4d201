package plantest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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
