package storage

import (
	"encoding/json"
	"sync"
)

// Kind is what a field holds.
type Kind uint8

// The kinds of fields, with their stored form and the Go type of their values.
const (
	KindString   Kind = iota + 1 // JSON string; string
	KindID                       // JSON string; string
	KindInt                      // JSON number, 32 bit; int
	KindFloat                    // JSON number; float64
	KindBoolean                  // JSON boolean; bool
	KindDateTime                 // JSON string, RFC 3339, UTC when written here; driver.Instant
	KindDate                     // JSON string, "2006-01-02"; string
	KindDecimal                  // JSON string (a number is read too); string
	KindJSON                     // any JSON value; json.RawMessage
	KindEnum                     // JSON string, one of Field.Enum; string
	KindObject                   // JSON object; *Object
	KindRef                      // JSON string, the key of a document; string
)

// Field describes one field of a type.
type Field struct {
	Name    string // in the GraphQL schema
	Stored  string // member name in stored documents; empty: the same as Name
	Kind    Kind
	List    bool // a list of Kind
	NonNull bool // the field (for a list: the list itself) is never null
	// ElemNonNull says that the elements of a list are never null. The elements
	// of a list of references are always nullable in GraphQL; their keys are not.
	ElemNonNull bool
	Indexed     bool
	Ref         string      // the name of the type that a Ref points at
	Keys        string      // the field of the GraphQL schema that shows a Ref's stored keys
	Object      *ObjectType // of an Object
	Enum        []string    // the values of an Enum
	// Default is what the field reads as where a version lacks it or holds
	// null: a JSON value in stored form; nil for none. A field with a default is
	// never null.
	Default json.RawMessage
	Auth    Auth // of a document's own field: Read and Write
}

// Auth says who may do what. Nil lists of roles let in everybody, empty ones nobody.
type Auth struct {
	Read, Write []string
	History     []string // who may read the past
	Rows        string   // a rule of package rule: which documents; "": all
}

// Type describes one kind of documents.
type Type struct {
	Name       string // "Project"
	Singular   string // root field of one document, "project"
	Plural     string // root field of many, "projects"
	Collection string // where the engine keeps them, "software"
	Fields     []Field
	Auth       Auth

	once   sync.Once
	object *ObjectType // the same fields, indexed; filled by prepare
	drafts *Type       // of its drafts; filled by prepare
	err    error
}

// Object is the type's fields as a store has prepared them, with what was left
// out filled in; nil before a store was made of the type.
func (t *Type) Object() *ObjectType { return t.object }

// ObjectType describes the objects nested in documents.
type ObjectType struct {
	Name   string
	Fields []Field

	byName, byStored map[string]int // of the copies that prepare makes
}
