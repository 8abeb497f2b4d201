package codegen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sosodev/duration"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/rule"
)

// directives returns the arguments of the directives at one place by directive and name. Some of
// what GraphQL allows there is possible, and texts are not empty.
func (r *reader) directives(list ast.DirectiveList, place string, possible ...string) map[string]map[string]*ast.Value {
	out := map[string]map[string]*ast.Value{}
	for _, d := range list {
		if !slices.Contains(possible, d.Name) {
			r.problems.add(d.Position, "@%s cannot stand on %s", d.Name, place)
			continue
		}
		if out[d.Name] != nil { // else the last one would count, and what the first one forbids be allowed
			r.problems.add(d.Position, "@%s is there twice; write its arguments into one", d.Name)
		}
		out[d.Name] = map[string]*ast.Value{}
		for _, a := range d.Arguments {
			isText := a.Value.Kind == ast.StringValue || a.Value.Kind == ast.BlockValue
			if d.Definition.Arguments.ForName(a.Name).Type.NamedType == "String" && (!isText || strings.TrimSpace(a.Value.Raw) == "") {
				r.problems.add(a.Position, "@%s(%s:) must be a text in quotes, not %s", d.Name, a.Name, a.Value)
				continue
			}
			out[d.Name][a.Name] = a.Value
		}
	}
	return out
}

// directiveSDL declares the directives that schema.graphqls may use; editors read it
// from graph/directives.graphqls.
const directiveSDL = `"""
Every version of these documents is remembered. The generator adds queries,
mutations and history for the type.
"""
directive @versioned(
  "Where the versions are stored; default: the plural. Renaming a type keeps its history when the collection stays."
  collection: String
  "The root field for many of them; default: the plural of the type's name."
  plural: String
  "Which versions are kept; all of them, where nothing is said. A version stays while one of the two wants it, and the last one always."
  keep: Retention
) on OBJECT

"Which versions of a document are kept."
input Retention {
  "So many of the last ones."
  versions: Int
  "Those that were current within such a time, a duration as in ISO 8601: \"P2Y\", \"P90D\"."
  for: String
}

"The field refers to documents of another @versioned type, and is stored as their keys."
directive @ref on FIELD_DEFINITION

"""
The field is that of another document, which a reference leads to, at the instant at which this one is read. It is not
stored: it has no versions and no changes of its own, and cannot be written.
"""
directive @copy(
  "The reference and the field, as in: license.name. Between them may be fields that hold nested types."
  from: String!
) on FIELD_DEFINITION

"The field has another name in the stored document."
directive @stored(
  "The member's name in the stored document, as imports and exports show it."
  as: String!
) on FIELD_DEFINITION

"Filtering and ordering by the field is fast in large collections."
directive @index on FIELD_DEFINITION

"A value of the field cannot be changed while the document exists; it can be given when the document is created, or later where there is none."
directive @immutable on FIELD_DEFINITION

"""
Who may read and write the documents of a type, or a field of them; everybody, where nothing is said. What somebody may not
read is absent from all answers. To write takes what it takes to read.
"""
directive @auth(
  "The roles of who may read, any of them."
  read: [String!]
  "The roles of who may write, any of them."
  write: [String!]
  "Of a type: the roles of who may read the past, any of them."
  history: [String!]
  "Of a type: the roles of who may erase values from its history, any of them; nobody, where nothing is said. Its required fields then read as null where they were erased."
  erase: [String!]
  "Of a type: which documents may be read and written, as in: owner = $sub. Names are fields, those after $ claims of who asks."
  rows: String
) on OBJECT | FIELD_DEFINITION

"What something was in versions that were written before; they are read as what it is now."
directive @was(
  "Its name. A type keeps its collection and the ids that begin with that name, a field its name in the stored document; an enum value that is stored reads as the new one."
  name: String
  "Of a list: it was one value, which reads as a list of that."
  single: Boolean
  "Of a field with a nested type: the stored names of fields that were beside it, and are in it now."
  members: [String!]
) on OBJECT | FIELD_DEFINITION | ENUM_VALUE

"The value that the field has in versions that lack it, and in new documents that do not give it."
directive @default(
  "A literal of the field's type."
  value: JSON!
) on FIELD_DEFINITION
`

// Keep is how long versions are kept, as the arguments say; the zero one is for ever.
type Keep struct {
	Versions            int // 0: not by number
	Years, Months, Days int
	Seconds             int
}

// keep reads the argument of @versioned(keep:).
func (r *reader) keep(v *ast.Value) (k Keep) {
	if v == nil {
		return k
	}
	wrong := func(at *ast.Value, format string, args ...any) {
		r.problems.add(at.Position, "@versioned(keep:) "+format+"; write {versions: 10}, {for: \"P2Y\"}, or both", args...)
	}
	if v.Kind != ast.ObjectValue || len(v.Children) == 0 {
		wrong(v, "must be an object, not %s", v)
		return k
	}
	for _, c := range v.Children {
		switch c.Name {
		case "versions":
			n, err := strconv.ParseInt(c.Value.Raw, 10, 32)
			if c.Value.Kind != ast.IntValue || err != nil || n < 1 {
				wrong(c.Value, "keeps %s versions: of each document at least 1 stays", c.Value)
				return k
			}
			k.Versions = int(n)
		case "for":
			if c.Value.Kind != ast.StringValue || !k.period(c.Value.Raw) {
				wrong(c.Value, "keeps versions for %s, which is not a positive duration in whole years, months, weeks, days, hours, minutes and seconds (ISO 8601), such as \"P90D\" or \"PT12H\"", c.Value)
				return k
			}
		default:
			wrong(v, "has no member %q", c.Name)
		}
	}
	return k
}

// period reads a duration in the notation of ISO 8601; false if it is none, or not positive.
func (k *Keep) period(text string) bool {
	d, err := duration.Parse(text)
	if err != nil || d.Negative {
		return false
	}
	whole := func(to *int, of ...float64) bool {
		sum := 0.0
		for _, part := range of {
			if part != math.Trunc(part) || part < 0 || part > 1e6 {
				return false
			}
			sum += part
		}
		*to = int(sum)
		return true
	}
	return whole(&k.Years, d.Years) && whole(&k.Months, d.Months) && whole(&k.Days, 7*d.Weeks, d.Days) &&
		whole(&k.Seconds, 3600*d.Hours, 60*d.Minutes, d.Seconds) && k.Years+k.Months+k.Days+k.Seconds > 0
}

// Metadata renders it for record.Type; "" where all is kept.
func (k Keep) Metadata() string {
	var parts, period []string
	if k.Versions > 0 {
		parts = append(parts, fmt.Sprintf("Versions: %d", k.Versions))
	}
	for _, p := range []struct {
		name string
		n    int
	}{{"Years", k.Years}, {"Months", k.Months}, {"Days", k.Days}} {
		if p.n > 0 {
			period = append(period, fmt.Sprintf("%s: %d", p.name, p.n))
		}
	}
	if k.Seconds > 0 {
		period = append(period, fmt.Sprintf("Time: %d_000_000_000", k.Seconds))
	}
	if period != nil {
		parts = append(parts, "For: record.Period{"+strings.Join(period, ", ")+"}")
	}
	if parts == nil {
		return ""
	}
	return "Keep: &record.Keep{" + strings.Join(parts, ", ") + "}"
}

// Auth is who may do what with a type or a field. Nil lists: everybody; empty ones: nobody.
type Auth struct {
	Read, Write, History []string
	Erase                []string // nil: nobody
	Rows                 string   // "": all documents

	pos *ast.Position
}

// auth reads the arguments of @auth.
func (r *reader) auth(args map[string]*ast.Value) Auth {
	var a Auth
	for name, to := range map[string]*[]string{"read": &a.Read, "write": &a.Write, "history": &a.History, "erase": &a.Erase} {
		if v := args[name]; v != nil {
			*to = r.roles(name, v)
		}
	}
	if v := args["rows"]; v != nil {
		a.Rows, a.pos = v.Raw, v.Position
	}
	return a
}

// roles reads a list of strings, or one.
func (r *reader) roles(name string, v *ast.Value) []string {
	children := v.Children
	if v.Kind == ast.StringValue {
		children = ast.ChildValueList{{Value: v}}
	} else if v.Kind != ast.ListValue {
		r.problems.add(v.Position, "@auth(%s:) must be a list of roles, such as [\"editor\"], not %s", name, v)
	}
	roles := []string{}
	for _, child := range children {
		if child.Value.Kind != ast.StringValue || child.Value.Raw == "" {
			r.problems.add(v.Position, "@auth(%s:) has %s; a role is a string in quotes, such as \"editor\"", name, child.Value)
			continue
		}
		roles = append(roles, child.Value.Raw)
	}
	return roles
}

// fieldAuth reads the @auth of a field.
func (r *reader) fieldAuth(def *ast.Definition, f *Field, args map[string]*ast.Value, nested bool) {
	where := def.Name + "." + f.Name
	f.Auth = r.auth(args)
	switch {
	case nested:
		r.problems.add(f.pos, "%s: @auth is only possible on @versioned types and their own fields; write it to the field that holds %s", where, def.Name)
	case args["history"] != nil || args["rows"] != nil || args["erase"] != nil:
		r.problems.add(f.pos, "%s: @auth(history:), @auth(erase:) and @auth(rows:) belong on the type", where)
	case f.Auth.Read != nil && (f.NonNull && !f.List || f.Default != ""):
		r.problems.add(f.pos, "%s: a field with @auth(read:) is absent for others, so it must be nullable and have no @default", where)
	}
}

// checkRows checks the rule of a type, once its fields are known.
func (r *reader) checkRows(d *Document) {
	if d.Auth.Rows == "" {
		return
	}
	fields := map[string]*Field{}
	for _, f := range d.Fields {
		fields[f.Name] = f
	}
	e, err := rule.Parse(d.Auth.Rows)
	if err == nil {
		err = rule.Check(e, func(name string) (rule.Kind, bool, bool) {
			f := fields[name]
			if f == nil {
				return "", false, false
			}
			return f.ruleKind(), f.List, true
		})
	}
	if err != nil {
		r.problems.add(d.Auth.pos, "%s: @auth(rows: %s): %v", d.Name, quote(d.Auth.Rows), err)
	}
}

func (f *Field) ruleKind() rule.Kind {
	switch {
	case f.List && f.Default != "":
		return rule.Other
	case f.Kind == kindString, f.Kind == kindID, f.Kind == kindEnum, f.Kind == kindRef:
		return rule.Text
	case f.Kind == kindInt:
		return rule.Number
	case f.Kind == kindBoolean:
		return rule.Truth
	}
	return rule.Other
}

// Metadata renders it for record.Type and record.Field; "" where nothing is said.
func (a Auth) Metadata() string {
	var parts []string
	for _, list := range []struct {
		name  string
		roles []string
	}{{"Read", a.Read}, {"Write", a.Write}, {"History", a.History}, {"Erase", a.Erase}} {
		if list.roles != nil {
			parts = append(parts, fmt.Sprintf("%s: %#v", list.name, list.roles))
		}
	}
	if a.Rows != "" {
		parts = append(parts, "Rows: "+strconv.Quote(a.Rows))
	}
	if parts == nil {
		return ""
	}
	return "Auth: record.Auth{" + strings.Join(parts, ", ") + "}"
}

// declareCopy reads a field with @copy, and adds it to the document's copies. What it is
// copied from is found when all fields are known, see copied.
func (r *reader) declareCopy(d *Document, fd *ast.FieldDefinition) {
	dirs := r.directives(fd.Directives, "a copied field", "copy", "index", "deprecated")
	f := &Field{Name: fd.Name, Stored: fd.Name, Description: fd.Description, NonNull: fd.Type.NonNull, Deprecated: deprecated(dirs), typ: fd.Type, pos: fd.Position}
	_, f.Indexed = dirs["index"]
	if len(fd.Arguments) > 0 {
		r.problems.add(fd.Position, "%s.%s: fields of documents take no arguments", d.Name, fd.Name)
	}
	if from := dirs["copy"]["from"]; from != nil {
		f.From = strings.Split(from.Raw, ".")
		f.Description = strings.Join(append(sentences(f.Description), fmt.Sprintf("It is %s, at the same instant.", from.Raw)), " ")
		d.Copies = append(d.Copies, f)
	}
}

// copied finds what a field is copied from, and returns why it is nothing that can be copied; ""
// where it can.
func (d *Document) copied(f *Field) string {
	wrong := fmt.Sprintf
	if len(f.From) < 2 {
		return wrong("name a reference of %s and a field of the document that it refers to, as in \"license.name\"", d.Name)
	}
	in, fields, copies := d.Name, d.Fields, d.Copies
	var ref, source *Field
	for i, name := range f.From {
		find := func(list []*Field) *Field {
			if at := slices.IndexFunc(list, func(f *Field) bool { return f.Name == name }); at >= 0 {
				return list[at]
			}
			return nil
		}
		source = find(fields)
		switch {
		case source == nil && find(copies) != nil:
			return wrong("%s.%s is a copy itself, and copies of copies, which could be cycles, are not possible; declare a reference to what holds the value", in, name)
		case source == nil:
			return wrong("%s has no field %s", in, name)
		case i == 0 && source.Kind != kindRef:
			return wrong("%s.%s is no reference; begin with a field that has @ref", in, name)
		case source.List:
			return wrong("%s.%s is a list, and what is copied is one value of one document; filter by %s instead, or store the keys that meet your condition", in, name, name)
		case i == 0:
			ref, in, fields, copies = source, source.Ref.Name, source.Ref.Fields, source.Ref.Copies
		case i < len(f.From)-1 && source.Kind != kindObject:
			return wrong("%s.%s has no fields that could be copied: one reference is followed, and then nested types", in, name)
		case i < len(f.From)-1:
			in, fields, copies = source.Object.Name, source.Object.Fields, nil
		}
	}
	switch {
	case source.Kind == kindObject || source.Kind == kindRef || source.Kind == kindJSON:
		return wrong("a %s cannot be copied; copy a scalar or an enum", map[Kind]string{kindObject: "nested type", kindRef: "reference", kindJSON: "JSON value"}[source.Kind])
	case f.typ.Elem != nil || f.TypeName() != source.TypeName():
		return wrong("that is %s, and the field %s; write %s", article(source.TypeName()), f.Type(), source.TypeName())
	case f.NonNull:
		return wrong("a copy must be nullable, since the document may not exist at the instant that is read; write %s", source.TypeName())
	case f.Indexed && !(source.Indexed && ref.Indexed):
		return wrong("documents are found by the indexes of %s.%s and %s.%s: give both @index, or leave it out here", d.Name, ref.Name, in, source.Name)
	}
	f.Kind, f.Enum = source.Kind, source.Enum
	return ""
}

// Shown are the fields as they are read: the document's own, and then the copied ones.
func (d *Document) Shown() []*Field { return slices.Concat(d.Fields, d.Copies) }

// CopyMetadata renders a copied field for record.Type.
func (f *Field) CopyMetadata() string {
	return fmt.Sprintf("{Name: %q, From: %s}", f.Name, "[]string{"+quotedList(f.From)+"}")
}

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
