package codegen

import (
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// Was is what a type, a field or an enum value was, as @was says.
type Was struct {
	Name    string   // "": it had the same
	Single  bool     // a list was one value
	Members []string // stored names of fields that were beside the object
}

// was reads the arguments of @was, of which some are possible.
func (r *reader) was(where string, args map[string]*ast.Value, possible ...string) (w Was) {
	for name, v := range args {
		if !slices.Contains(possible, name) {
			r.problems.add(v.Position, "%s: @was(%s:) is possible on fields only", where, name)
		}
	}
	if v := args["name"]; v != nil {
		if w.Name = v.Raw; !isName(v.Raw) {
			r.problems.add(v.Position, "%s: @was(name: %q) is not a name", where, v.Raw)
		}
	}
	if v := args["single"]; v != nil {
		if w.Single = v.Raw == "true"; v.Kind != ast.BooleanValue || !w.Single {
			r.problems.add(v.Position, "%s: @was(single:) must be true, where it is given", where)
		}
	}
	if v := args["members"]; v != nil {
		for _, child := range v.Children {
			w.Members = append(w.Members, child.Value.Raw)
		}
		if v.Kind != ast.ListValue || len(w.Members) == 0 || slices.ContainsFunc(v.Children, func(c *ast.ChildValue) bool { return c.Value.Kind != ast.StringValue }) {
			r.problems.add(v.Position, "%s: @was(members:) must be a list of stored names, such as [\"street\", \"city\"], not %s", where, v)
		}
	}
	return w
}

// checkWas checks what a field was, among those of its type by their stored names.
func (r *reader) checkWas(typ string, f *Field, stored map[string]*Field) {
	where := typ + "." + f.Name
	if f.Was.Single && !f.List {
		r.problems.add(f.pos, "%s: @was(single: true) is possible on lists only, where versions hold one value", where)
	}
	if f.Was.Members != nil && (f.Object == nil || f.List) {
		r.problems.add(f.pos, "%s: @was(members:) is possible on fields with a nested type only, and not on lists", where)
		return
	}
	for _, name := range f.Was.Members {
		if other := stored[name]; other != nil {
			r.problems.add(f.pos, "%s: @was(members:) has %q, under which %s.%s is stored now; give that another name with @stored(as:)", where, name, typ, other.Name)
		}
		if !slices.ContainsFunc(f.Object.Fields, func(in *Field) bool { return in.Stored == name }) {
			r.problems.add(f.pos, "%s: @was(members:) has %q, and no field of %s is stored so; add one, or @was(name: %[2]q) to the one that it is now", where, name, f.Object.Name)
		}
	}
}

// checkWasValues looks for values that were what another one is, or was.
func (r *reader) checkWasValues(e *Enum) {
	names := map[string]string{}
	for _, v := range e.Values {
		names[v.Name] = v.Name
	}
	for _, v := range e.Values {
		if other := names[v.Was]; v.Was != "" && other != "" {
			r.problems.add(e.pos, "enum %s: %s was %s, which is, or was, %s", e.Name, v.Name, v.Was, other)
		}
		names[v.Was] = v.Name
	}
}

// wasMetadata renders what the field was for record.Field; "" for nothing.
func (f *Field) wasMetadata() string {
	var parts []string
	if f.Was.Single {
		parts = append(parts, "Single: true")
	}
	if f.Was.Members != nil {
		parts = append(parts, "Members: []string{"+quotedList(f.Was.Members)+"}")
	}
	if f.Enum != nil {
		var values []string
		for _, v := range f.Enum.Values {
			if v.Was != "" {
				values = append(values, strconv.Quote(v.Was)+": "+strconv.Quote(v.Name))
			}
		}
		if values != nil {
			parts = append(parts, "Enum: map[string]string{"+strings.Join(values, ", ")+"}")
		}
	}
	if parts == nil {
		return ""
	}
	return "Was: record.Was{" + strings.Join(parts, ", ") + "}"
}

// quotedList renders texts as Go or GraphQL lists have them.
func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

// Stored renders what documents can hold: the types without descriptions and what is about the API alone.
func (c *Catalogue) Stored() string {
	var b strings.Builder
	fields := func(list []*Field) {
		for _, f := range list {
			b.WriteString("  " + f.Name + ": " + f.typ.String())
			if f.IsRef() {
				b.WriteString(" @ref")
			}
			if f.Stored != f.Name {
				b.WriteString(" @stored(as: " + quote(f.Stored) + ")")
			}
			if f.Default != "" {
				b.WriteString(" @default(value: " + quote(f.Default) + ")")
			}
			if f.Was.Single {
				b.WriteString(" @was(single: true)")
			}
			if f.Was.Members != nil {
				b.WriteString(" @was(members: [" + quotedList(f.Was.Members) + "])")
			}
			b.WriteByte('\n')
		}
		b.WriteString("}\n")
	}
	was := func(name string) string {
		if name == "" {
			return ""
		}
		return " @was(name: " + quote(name) + ")"
	}
	for _, d := range c.Documents {
		b.WriteString("type " + d.Name + " @versioned(collection: " + quote(d.Collection) + ")" + was(d.Was) + " {\n")
		fields(d.Fields)
	}
	for _, o := range c.Objects {
		b.WriteString("type " + o.Name + " {\n")
		fields(o.Fields)
	}
	for _, e := range c.Enums {
		b.WriteString("enum " + e.Name + " {\n")
		for _, v := range e.Values {
			b.WriteString("  " + v.Name + was(v.Was) + "\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// quotedLines renders a text as Go, a line for each of its own.
func quotedLines(text string) string {
	lines := slices.Collect(strings.Lines(text))
	for i, line := range lines {
		lines[i] = strconv.Quote(line)
	}
	return strings.Join(lines, " +\n\t")
}
