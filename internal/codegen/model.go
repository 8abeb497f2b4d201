package codegen

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-openapi/inflect"
	"github.com/vektah/gqlparser/v2/ast"
)

// Kind is what a field holds. Its names are those of package storage.
type Kind string

// The kinds of fields.
const (
	kindString   Kind = "String"
	kindID       Kind = "ID"
	kindInt      Kind = "Int"
	kindFloat    Kind = "Float"
	kindBoolean  Kind = "Boolean"
	kindDateTime Kind = "DateTime"
	kindDate     Kind = "Date"
	kindDecimal  Kind = "Decimal"
	kindJSON     Kind = "JSON"
	kindEnum     Kind = "Enum"
	kindObject   Kind = "Object"
	kindRef      Kind = "Ref"
)

// scalarKinds maps the names of scalars to kinds.
func scalarKinds() map[string]Kind {
	return map[string]Kind{
		"String": kindString, "ID": kindID, "Int": kindInt, "Float": kindFloat, "Boolean": kindBoolean,
		"DateTime": kindDateTime, "Date": kindDate, "Decimal": kindDecimal, "JSON": kindJSON,
	}
}

// Catalogue is everything that a set of SDL files declares, checked.
type Catalogue struct {
	// Root is the import path of the directory that schema.graphqls is in: what is
	// generated is below it.
	Root      string
	Documents []*Document // in the order of the files
	Objects   []*Object
	Enums     []*Enum
	// SDL is the complete schema: the types as they are read, and everything that the
	// generator adds. The same sources in the same order give the same text.
	SDL string
}

// Document is a @versioned type.
type Document struct {
	Name        string // "Project"
	Singular    string // root field of one: "project"
	Plural      string // root field of many: "projects"
	Collection  string // where its versions are stored: "software"
	Description string
	Fields      []*Field
	Copies      []*Field // fields of other documents
	Auth        Auth
	Keep        Keep
	Was         string // what it was called; "": nothing else

	pos *ast.Position
}

// Erasable reports whether somebody may erase.
func (d *Document) Erasable() bool { return d.Auth.Erase != nil }

// Object is a type nested in documents.
type Object struct {
	Name        string
	Description string
	Fields      []*Field
	// InList and Single say how fields hold it: in lists, or alone.
	InList, Single bool

	pos *ast.Position
}

// Enum is an enum declared in SDL.
type Enum struct {
	Name        string
	Description string
	Values      []EnumValue
	// InList and Single say how fields hold it: in lists, or alone.
	InList, Single bool

	pos *ast.Position
}

// EnumValue is one value of an enum.
type EnumValue struct {
	Name        string
	Description string
	Deprecated  string // a rendered @deprecated, or ""
	Was         string // what it was called; "": nothing else
}

// Field is one field of a document or an object.
type Field struct {
	Name        string // in GraphQL
	Stored      string // the member's name in the stored document
	Description string
	Kind        Kind
	List        bool
	NonNull     bool // of the field, or of the list
	ElemNonNull bool // of the list's elements
	Indexed     bool
	Immutable   bool
	Ref         *Document
	Object      *Object
	Enum        *Enum
	Default     string   // JSON; "" where there is none
	From        []string // of a copied field: a reference, nested types and a field
	Deprecated  string   // a rendered @deprecated, or ""
	Auth        Auth
	Erasable    bool // required, and yet null where it was erased
	Was         Was

	// KeyName is the generated field of a reference's keys: "tagKeys".
	KeyName string

	typ *ast.Type
	pos *ast.Position
}

// TypeName is the name of the field's type in GraphQL, without list and
// non-null marks.
func (f *Field) TypeName() string { return f.typ.Name() }

// Type is the field's type as it is read: as declared, or null where it was erased.
func (f *Field) Type() string {
	if f.Erasable {
		return strings.TrimSuffix(f.typ.String(), "!")
	}
	return f.typ.String()
}

// IsRef reports whether the field holds references.
func (f *Field) IsRef() bool { return f.Kind == kindRef }

// KeyType is the type of the generated field of a reference's keys.
func (f *Field) KeyType() string {
	if f.List {
		return "[ID!]!"
	}
	return "ID"
}

// inputType is the field's type where it is written, without the outer
// non-null mark.
func (f *Field) inputType(objectSuffix string) string {
	name := f.TypeName()
	switch {
	case f.Kind == kindRef:
		name = "ID"
	case f.Kind == kindObject && f.List:
		name += "Input" // elements of lists are written whole
	case f.Kind == kindObject:
		name += objectSuffix
	}
	switch {
	case !f.List:
		return name
	case f.ElemNonNull || f.Kind == kindRef:
		return "[" + name + "!]"
	default:
		return "[" + name + "]"
	}
}

// DataType is the field's type in the data of a new document.
func (f *Field) DataType() string {
	t := f.inputType("Input")
	if f.Required() {
		t += "!"
	}
	return t
}

// DataDeprecated is Deprecated in the data of a new document: GraphQL lets no input
// field be deprecated that must be given.
func (f *Field) DataDeprecated() string {
	if f.Required() {
		return ""
	}
	return f.Deprecated
}

// PatchType is the field's type in a patch, where everything is optional.
func (f *Field) PatchType() string { return f.inputType("Patch") }

// Required reports whether new documents must give the field: it is not null,
// has no default and is not a list (a missing list reads as empty).
func (f *Field) Required() bool { return f.NonNull && !f.List && f.Default == "" }

// FilterType is the input with which a where input compares the field.
func (f *Field) FilterType() string {
	switch {
	case f.Kind == kindRef && f.List:
		return "RefListFilter"
	case f.Kind == kindRef:
		return "RefFilter"
	case f.Kind == kindObject && !f.List:
		return f.TypeName() + "Where"
	case f.List:
		return f.TypeName() + "ListFilter"
	default:
		return f.TypeName() + "Filter"
	}
}

// Sortable reports whether lists of documents can be ordered by the field.
func (f *Field) Sortable() bool {
	switch f.Kind {
	case kindObject, kindRef, kindJSON:
		return false
	default:
		return !f.List
	}
}

// Sortable are the fields by which the documents can be ordered.
func (d *Document) Sortable() []*Field {
	var out []*Field
	for _, f := range d.Shown() {
		if f.Sortable() {
			out = append(out, f)
		}
	}
	return out
}

// Refs are the document's reference fields.
func (d *Document) Refs() []*Field {
	var out []*Field
	for _, f := range d.Fields {
		if f.IsRef() {
			out = append(out, f)
		}
	}
	return out
}

// plural is the plural of a name in lower camel case: only its last word is
// inflected ("gameServer" → "gameServers").
func plural(name string) string {
	head, last := lastWord(name)
	return head + matchCase(last, inflect.Pluralize(strings.ToLower(last)))
}

// singular is the singular of a name in lower camel case.
func singular(name string) string {
	head, last := lastWord(name)
	return head + matchCase(last, inflect.Singularize(strings.ToLower(last)))
}

// lastWord splits a name before its last upper-case letter or after its last
// underscore.
func lastWord(name string) (head, last string) {
	i := strings.LastIndexFunc(name, func(r rune) bool { return unicode.IsUpper(r) || r == '_' })
	if i < 0 {
		return "", name
	}
	if name[i] == '_' {
		i++
	}
	return name[:i], name[i:]
}

// matchCase gives the inflected word the first letter of the original: nouns
// are looked up in lower case.
func matchCase(original, inflected string) string {
	if original == "" || inflected == "" {
		return original
	}
	o, _ := utf8.DecodeRuneInString(original)
	r, size := utf8.DecodeRuneInString(inflected)
	if unicode.IsUpper(o) {
		r = unicode.ToUpper(r)
	}
	return string(r) + inflected[size:]
}

// lowerFirst turns a type's name into a field's: "Project" → "project",
// "URLMap" → "urlMap", "DNS" → "dns".
func lowerFirst(name string) string {
	upper := 0
	for upper < len(name) && name[upper] >= 'A' && name[upper] <= 'Z' {
		upper++
	}
	if upper > 1 && upper < len(name) {
		upper-- // the last capital begins the next word
	}
	return strings.ToLower(name[:upper]) + name[upper:]
}

// upperFirst turns a field's name into the ending of a type's.
func upperFirst(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// keyName names the field that holds a reference's keys: "tags" → "tagKeys",
// "license" → "licenseKey".
func keyName(field string, list bool) string {
	if list {
		return singular(field) + "Keys"
	}
	return field + "Key"
}

// reservedFields are the fields that every document has, and the words of
// filters: no field of a document may be called so.
func reservedFields() []string {
	return []string{
		"id", "key", "version", "versionInfo", "versions", "changelog", "blame", "diff", "recordedAt",
		"and", "or", "not",
	}
}

// reservedNestedFields are the words of filters.
func reservedNestedFields() []string { return []string{"and", "or", "not"} }

// isReserved reports whether a field may not have this name; it may not differ
// in case or underscores only either, as methods in Go would clash.
func isReserved(name string, nested bool) bool {
	words := reservedFields()
	if nested {
		words = reservedNestedFields()
	}
	return slices.ContainsFunc(words, func(word string) bool { return strings.EqualFold(word, goName(name)) })
}

// mutationVerbs are what the mutations of a document are called, with its type behind.
func mutationVerbs() []string { return []string{"Create", "Update", "Delete", "Restore"} }

// goName is the name of a field's method in Go: "websiteUrl" → "WebsiteUrl",
// "source_code" → "SourceCode". An underscore is added to the names of methods
// that must stay what they are: those that the executor calls on models, and
// those that gqlgen, package fmt or go vet looks for. That distinguishes them because models embed
// under names that are not exported: gqlgen ignores underscores in the names of
// fields in Go.
func goName(field string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(field, "_") {
		b.WriteString(upperFirst(part))
	}
	name := b.String()
	taken := []string{
		"Base", "IsNode", "IsDocument", "RawField", "String", "Error", "Format", "GoString",
		"GobDecode", "GobEncode", "MarshalGQL", "MarshalGQLContext", "MarshalJSON", "MarshalXML",
		"ReadByte", "ReadRune", "UnmarshalGQL", "UnmarshalGQLContext", "UnmarshalJSON", "UnmarshalXML",
		"UnreadByte", "UnreadRune", "WriteByte",
	}
	if slices.ContainsFunc(taken, func(t string) bool { return strings.EqualFold(t, name) }) {
		return name + "_"
	}
	return name
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
