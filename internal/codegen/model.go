package codegen

import (
	"strings"

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
