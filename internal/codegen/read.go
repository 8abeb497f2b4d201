package codegen

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
)

// Read parses SDL and checks it. The error, if any, is of type Problems and holds everything that
// is wrong; of SDL that GraphQL does not allow it holds the first place alone, or, where files cannot
// be parsed, the first of each.
func Read(sources ...*ast.Source) (*Catalogue, error) {
	r := &reader{
		catalogue: &Catalogue{}, defs: map[string]*ast.Definition{},
		documents: map[string]*Document{}, objects: map[string]*Object{}, enums: map[string]*Enum{},
	}
	all, err := parser.ParseSchemas(validator.Prelude, &ast.Source{Input: directiveSDL + sharedSections()["scalars"]})
	if err != nil {
		return nil, fmt.Errorf("the directives and scalars: %w", err)
	}
	for _, src := range sources {
		if p := textProblem(src); p != nil {
			r.problems = append(r.problems, *p)
			continue
		}
		doc, err := parser.ParseSchema(src)
		if err != nil {
			r.problems = append(r.problems, advised(err, src.Input, all))
			continue
		}
		r.parsed = append(r.parsed, doc)
		all.Merge(doc)
	}
	if len(r.problems) > 0 {
		return nil, r.problems.err(sources)
	}
	if _, err := validator.ValidateSchemaDocument(all); err != nil {
		return nil, Problems{advised(err, "", all)}
	}
	r.declare()
	r.fields()
	r.check()
	if err := r.problems.err(sources); err != nil {
		return nil, err
	}
	if len(r.catalogue.Documents) == 0 {
		p := Problem{Line: 1, Column: 1, Message: "no type is @versioned; write, for example, type Note @versioned(collection: \"notes\") { text: String! }"}
		if len(sources) > 0 {
			p.File = sources[0].Name
		}
		return nil, Problems{p}
	}
	if r.catalogue.SDL, err = r.catalogue.expand(); err != nil {
		return nil, err
	}
	r.checkNames()
	return r.catalogue, r.problems.err(sources)
}

// reader turns parsed SDL into a catalogue, noting problems on the way.
type reader struct {
	parsed    []*ast.SchemaDocument
	problems  Problems
	catalogue *Catalogue

	defs      map[string]*ast.Definition
	documents map[string]*Document
	objects   map[string]*Object
	enums     map[string]*Enum
}

// declare notes the name of every type, so that fields may refer to types that
// are written later.
func (r *reader) declare() {
	for _, doc := range r.parsed {
		for _, s := range append(doc.Schema, doc.SchemaExtension...) {
			r.problems.add(s.Position, "a schema block is not needed: Query and Mutation are generated")
		}
		for _, e := range doc.Extensions {
			r.problems.add(e.Position, "extend %s: write the whole type in one place", e.Name)
		}
		for _, def := range doc.Definitions {
			r.declareType(def)
		}
	}
}

func (r *reader) declareType(def *ast.Definition) {
	r.defs[def.Name] = def
	if def.Name[0] < 'A' || def.Name[0] > 'Z' {
		r.problems.add(def.Position, "type %s: names of types begin with a capital letter", def.Name)
	}
	switch {
	case def.Kind == ast.Enum:
		r.declareEnum(def)
	case def.Kind != ast.Object || len(def.Interfaces) > 0 || slices.Contains([]string{"Query", "Mutation", "Subscription"}, def.Name):
		r.problems.add(def.Position, "%s: only types and enums can be declared here, without interfaces; Query, Mutation, inputs and unions are generated from the @versioned types", def.Name)
	case def.Directives.ForName("versioned") != nil:
		r.declareDocument(def)
	default:
		r.directives(def.Directives, "a nested type")
		o := &Object{Name: def.Name, Description: def.Description, pos: def.Position}
		r.objects[def.Name] = o
		r.catalogue.Objects = append(r.catalogue.Objects, o)
	}
}

func (r *reader) declareDocument(def *ast.Definition) {
	dirs := r.directives(def.Directives, "a type", "versioned", "was", "auth")
	args := dirs["versioned"]
	d := &Document{Name: def.Name, Description: def.Description, Singular: lowerFirst(def.Name), pos: def.Position}
	d.Auth, d.Keep = r.auth(dirs["auth"]), r.keep(args["keep"])
	d.Plural = plural(d.Singular)
	if v := args["plural"]; v != nil {
		d.Plural = v.Raw
		if !isName(v.Raw) {
			r.problems.add(v.Position, "@versioned(plural: %q) is not a name; write letters, digits and _, as in %q", v.Raw, plural(d.Singular))
		}
	}
	d.Collection = d.Plural
	if was := r.was(def.Name, dirs["was"], "name"); was.Name != "" {
		d.Was, d.Collection = was.Name, plural(lowerFirst(was.Name))
	}
	if v := args["collection"]; v != nil {
		d.Collection = v.Raw
	}
	r.documents[def.Name] = d
	r.catalogue.Documents = append(r.catalogue.Documents, d)
}

func (r *reader) declareEnum(def *ast.Definition) {
	r.directives(def.Directives, "an enum")
	e := &Enum{Name: def.Name, Description: def.Description, pos: def.Position}
	for _, v := range def.EnumValues {
		dirs := r.directives(v.Directives, "an enum value", "deprecated", "was")
		e.Values = append(e.Values, EnumValue{Name: v.Name, Description: v.Description, Deprecated: deprecated(dirs), Was: r.was(def.Name+"."+v.Name, dirs["was"], "name").Name})
	}
	r.checkWasValues(e)
	r.enums[def.Name] = e
	r.catalogue.Enums = append(r.catalogue.Enums, e)
}

// fields reads the fields of every type, once all types are known.
func (r *reader) fields() {
	for _, d := range r.catalogue.Documents {
		d.Fields = r.fieldsOf(r.defs[d.Name], d)
		for _, f := range d.Fields {
			f.Erasable = d.Erasable() && f.Required()
		}
	}
	for _, o := range r.catalogue.Objects {
		o.Fields = r.fieldsOf(r.defs[o.Name], nil)
	}
	for _, d := range r.catalogue.Documents {
		for _, f := range d.Copies {
			if why := d.copied(f); why != "" {
				r.problems.add(f.pos, "%s.%s: @copy(from: %q): %s", d.Name, f.Name, strings.Join(f.From, "."), why)
			}
		}
	}
}

// fieldsOf reads the fields of a document, or, where that is nil, of a nested type.
func (r *reader) fieldsOf(def *ast.Definition, d *Document) []*Field {
	var fields []*Field
	for _, fd := range def.Fields {
		if d != nil && fd.Directives.ForName("copy") != nil {
			r.declareCopy(d, fd)
			continue
		}
		if f := r.field(def, fd, d == nil); f != nil {
			fields = append(fields, f)
		}
	}
	return fields
}

// field reads one field; nil where its type is not usable at all.
func (r *reader) field(def *ast.Definition, fd *ast.FieldDefinition, nested bool) *Field {
	dirs := r.directives(fd.Directives, "a field", "ref", "stored", "was", "index", "immutable", "default", "deprecated", "auth")
	f := &Field{
		Name: fd.Name, Stored: fd.Name, Description: fd.Description, NonNull: fd.Type.NonNull,
		Deprecated: deprecated(dirs), typ: fd.Type, pos: fd.Position,
	}
	if v := dirs["stored"]["as"]; v != nil {
		f.Stored = v.Raw
	}
	f.Was = r.was(def.Name+"."+fd.Name, dirs["was"], "name", "single", "members")
	if f.Was.Name != "" {
		if f.Stored != f.Name {
			r.problems.add(fd.Position, "%s.%s: @was(name:) and @stored(as:) are both the name in the stored document; leave one out", def.Name, fd.Name)
		}
		f.Stored = f.Was.Name
	}
	_, f.Indexed = dirs["index"]
	if _, f.Immutable = dirs["immutable"]; f.Immutable && nested {
		r.problems.add(fd.Position, "%s.%s: @immutable is only possible on fields of @versioned types; write it to the field that holds %s", def.Name, fd.Name, def.Name)
	}
	if len(fd.Arguments) > 0 {
		r.problems.add(fd.Position, "%s.%s: fields of documents take no arguments", def.Name, fd.Name)
	}
	if fd.Type.Elem != nil {
		f.List, f.ElemNonNull = true, fd.Type.Elem.NonNull
		if fd.Type.Elem.Elem != nil {
			r.problems.add(fd.Position, "%s.%s: lists of lists are not supported; use a list of a nested type, or JSON", def.Name, fd.Name)
			return nil
		}
	}
	if !r.fieldKind(def, f, dirs, nested) {
		return nil
	}
	if v := dirs["default"]["value"]; v != nil {
		r.fieldDefault(def, f, v)
	}
	if args, ok := dirs["auth"]; ok {
		r.fieldAuth(def, f, args, nested)
	}
	return f
}

// fieldKind finds out what the field holds; false where its type is unknown
// or unsupported.
func (r *reader) fieldKind(def *ast.Definition, f *Field, dirs map[string]map[string]*ast.Value, nested bool) bool {
	name := f.TypeName()
	_, isRef := dirs["ref"]
	where := def.Name + "." + f.Name
	switch {
	case scalarKinds()[name] != "":
		f.Kind = scalarKinds()[name]
	case r.enums[name] != nil:
		f.Kind, f.Enum = kindEnum, r.enums[name]
		f.Enum.InList, f.Enum.Single = f.Enum.InList || f.List, f.Enum.Single || !f.List
	case r.objects[name] != nil:
		f.Kind, f.Object = kindObject, r.objects[name]
		f.Object.InList, f.Object.Single = f.Object.InList || f.List, f.Object.Single || !f.List
		if isRef {
			r.problems.add(f.pos, "%s: @ref needs a @versioned type, and %s is a nested one; leave @ref out, or make %s @versioned", where, name, name)
			return false
		}
	case r.documents[name] != nil:
		return r.reference(f, where, isRef, nested)
	default:
		r.problems.add(f.pos, "%s: a field cannot hold %s", where, name)
		return false
	}
	if isRef {
		r.problems.add(f.pos, "%s: @ref needs a @versioned type, and %s is not one", where, name)
	}
	return true
}

func (r *reader) reference(f *Field, where string, isRef, nested bool) bool {
	name := f.TypeName()
	switch {
	case !isRef:
		r.problems.add(f.pos, "%s: %s is a @versioned type; add @ref to store references to its documents", where, name)
		return false
	case nested:
		r.problems.add(f.pos, "%s: references are only possible in @versioned types; declare the keys instead, as ID or [ID!]", where)
		return false
	case f.List && f.ElemNonNull:
		r.problems.add(f.pos, "%s: elements of a list of references must be nullable, since a document may not exist at the instant that is read; write [%s]!", where, name)
	case !f.List && f.NonNull:
		r.problems.add(f.pos, "%s: a reference must be nullable, since the document may not exist at the instant that is read; write %s", where, name)
	}
	f.Kind, f.Ref, f.KeyName = kindRef, r.documents[name], keyName(f.Name, f.List)
	return true
}

// deprecated renders @deprecated again, for the generated type. GraphQL's default
// for the reason is written out: gqlgen tells clients of none without it, and they
// take what has no reason for what is not deprecated.
func deprecated(dirs map[string]map[string]*ast.Value) string {
	args, ok := dirs["deprecated"]
	if !ok {
		return ""
	}
	if v := args["reason"]; v != nil {
		return fmt.Sprintf("@deprecated(reason: %s)", quote(v.Raw))
	}
	return `@deprecated(reason: "No longer supported")`
}

// quote renders a GraphQL string: JSON's escapes are among GraphQL's.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""` // strings always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// place names a position for a message about another one.
func place(pos *ast.Position) string {
	if pos == nil || pos.Src == nil {
		return "an unknown place"
	}
	return fmt.Sprintf("%s:%d", pos.Src.Name, pos.Line)
}

// isName reports whether s can be the name of a field.
var isName = regexp.MustCompile("^[A-Za-z][A-Za-z0-9_]*$").MatchString
