package plantest

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

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
