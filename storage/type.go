package storage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
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
	// Erasable says that the field reads as null where it was erased, though it is NonNull.
	Erasable bool
	Was      Was
}

// Was says in which other form a field is in versions that were written under earlier schemas. They are
// read in today's form, see migrating.
type Was struct {
	Single  bool              // of a list: one value, which reads as a list of it
	Members []string          // of an object: the stored names of members beside it, which are in it now
	Enum    map[string]string // of an enum: values that are called otherwise now
}

// Auth says who may do what. Nil lists of roles let in everybody, empty ones nobody.
type Auth struct {
	Read, Write []string
	History     []string // who may read the past
	Erase       []string // who may erase; nil: nobody
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
	Keep       *Keep  // nil: all versions
	Was        string // what the type was called, and ids name it by; "": nothing else
	Copies     []Copy

	once   sync.Once
	object *ObjectType // the same fields, indexed; filled by prepare
	drafts *Type       // of its drafts; filled by prepare
	tags   *Type       // of its tags; filled by prepare
	err    error

	copiesOnce sync.Once
	copies     []Copy // as they are prepared
	copiesErr  error
}

// Object is the type's fields as a store has prepared them, with what was left
// out filled in; nil before a store was made of the type.
func (t *Type) Object() *ObjectType { return t.object }

// Copied are the type's copies as a store has prepared them.
func (t *Type) Copied() []Copy { return t.copies }

// ObjectType describes the objects nested in documents.
type ObjectType struct {
	Name   string
	Fields []Field

	byName, byStored map[string]int // of the copies that prepare makes
	was              []int          // the fields that were in another form, or hold something that was
}

// reserved are the names that every document has; a type's own fields cannot
// be called so.
var reserved = []string{
	"id", "key", "version", "versionInfo", "versions", "changelog", "blame", "diff", "recordedAt", "and", "or", "not",
}

// prepareTypes checks the metadata and indexes it. It may be called more than
// once, and concurrently, with the same types.
func prepareTypes(types []*Type) error {
	names, collections, roots := map[string]*Type{}, map[string]*Type{}, map[string]*Type{}
	for _, t := range types {
		switch {
		case t == nil || t.Name == "":
			return fmt.Errorf("storage: a type has no name")
		case names[t.Name] != nil:
			return fmt.Errorf("storage: two types are called %s", t.Name)
		case t.Collection == "":
			return fmt.Errorf("storage: type %s names no collection", t.Name)
		case collections[t.Collection] != nil:
			return fmt.Errorf("storage: types %s and %s share the collection %s", collections[t.Collection].Name, t.Name, t.Collection)
		}
		for _, root := range []string{t.Singular, t.Plural} {
			if root != "" && roots[root] != nil {
				return fmt.Errorf("storage: types %s and %s share the root field %s", roots[root].Name, t.Name, root)
			}
			roots[root] = t
		}
		names[t.Name], collections[t.Collection] = t, t
	}
	for _, t := range types {
		if names[t.Was] != nil {
			return fmt.Errorf("storage: type %s was called %s, and a type is called so", t.Name, t.Was)
		}
		for of, name := range map[string]string{"drafts": draftCollection(t), "tags": tagCollection(t)} {
			if other := collections[name]; other != nil {
				return fmt.Errorf("storage: the collection of type %s, %s, is that of the %s of type %s", other.Name, other.Collection, of, t.Name)
			}
		}
		if err := t.prepare(); err != nil {
			return err
		}
		if err := t.object.checkRefs(names, nil); err != nil {
			return err
		}
	}
	for _, t := range types {
		if err := t.prepareCopies(names); err != nil {
			return err
		}
	}
	return nil
}

// prepare checks the type by itself and indexes its fields, once.
func (t *Type) prepare() error {
	t.once.Do(func() {
		for _, f := range t.Fields {
			if slices.Contains(reserved, f.Name) {
				t.err = fmt.Errorf("storage: %s.%s: the name is reserved; use another one with @stored(as: %q)", t.Name, f.Name, f.Name)
				return
			}
		}
		if t.err = t.Keep.check(); t.err != nil {
			t.err = fmt.Errorf("storage: type %s %w", t.Name, t.err)
			return
		}
		if t.object, t.err = prepareObject(&ObjectType{Name: t.Name, Fields: t.Fields}, map[*ObjectType]*ObjectType{}); t.err == nil && t.drafts == nil {
			t.drafts, t.tags = newDraftType(t), newTagType(t)
			t.err = cmp.Or(t.drafts.prepare(), t.tags.prepare())
		}
	})
	return t.err
}

// prepareObject returns an indexed copy of the type. Types may contain
// themselves, so done holds the copies made so far.
func prepareObject(in *ObjectType, done map[*ObjectType]*ObjectType) (*ObjectType, error) {
	if o := done[in]; o != nil {
		return o, nil
	}
	o := &ObjectType{Name: in.Name, Fields: slices.Clone(in.Fields), byName: map[string]int{}, byStored: map[string]int{}}
	done[in] = o
	for i := range o.Fields {
		f := &o.Fields[i]
		if f.Stored == "" {
			f.Stored = f.Name
		}
		if f.Kind == KindObject && f.Object != nil {
			var err error
			if f.Object, err = prepareObject(f.Object, done); err != nil {
				return nil, err
			}
		}
		if err := o.checkField(i, f); err != nil {
			return nil, fmt.Errorf("storage: %s.%s: %w", o.Name, f.Name, err)
		}
		o.byName[f.Name], o.byStored[f.Stored] = i, i
		if f.Was.Single || f.Was.Members != nil || f.Was.Enum != nil || f.Object != nil && f.Object.was != nil {
			o.was = append(o.was, i)
		}
	}
	return o, nil
}

func (o *ObjectType) checkRefs(types map[string]*Type, seen []*ObjectType) error {
	if slices.Contains(seen, o) {
		return nil
	}
	seen = append(seen, o)
	for i := range o.Fields {
		f := &o.Fields[i]
		if f.Kind == KindRef && types[f.Ref] == nil {
			return fmt.Errorf("storage: %s.%s: there is no type %q to refer to", o.Name, f.Name, f.Ref)
		}
		if f.Kind == KindObject {
			if err := f.Object.checkRefs(types, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *ObjectType) checkField(i int, f *Field) error {
	if f.Name == "" {
		return fmt.Errorf("field %d has no name", i)
	}
	if _, double := o.byName[f.Name]; double {
		return fmt.Errorf("the name is used twice")
	}
	if j, double := o.byStored[f.Stored]; double {
		return fmt.Errorf("it is stored as %q, and so is %s", f.Stored, o.Fields[j].Name)
	}
	switch f.Kind {
	case KindString, KindID, KindInt, KindFloat, KindBoolean, KindDateTime, KindDate, KindDecimal, KindJSON, KindRef:
	case KindEnum:
		if len(f.Enum) == 0 {
			return fmt.Errorf("an enum needs values")
		}
	case KindObject:
		if f.Object == nil {
			return fmt.Errorf("an object needs a type")
		}
	default:
		return fmt.Errorf("unknown kind %d", f.Kind)
	}
	if f.Default == nil {
		return nil
	}
	if !json.Valid(f.Default) || string(f.Default) == "null" {
		return fmt.Errorf("the default %s is not a JSON value other than null", f.Default)
	}
	c := checker{strict: true, exact: true, most: 1}
	c.field(f, f.Default)
	if len(c.mismatches) > 0 {
		return fmt.Errorf("the default does not fit: %w", c.mismatches[0])
	}
	if c.err != nil {
		return fmt.Errorf("the default does not fit: %w", c.err)
	}
	return nil
}

// field returns the field with a GraphQL name, nil if there is none.
func (o *ObjectType) field(name string) *Field {
	if i, ok := o.byName[name]; ok {
		return &o.Fields[i]
	}
	return nil
}

// storedAs returns the place of the field with a stored name, -1 if there is none.
func (o *ObjectType) storedAs(name string) int {
	if i, ok := o.byStored[name]; ok {
		return i
	}
	return -1
}

// Was are the places of the fields that were in another form, or hold something that was.
func (o *ObjectType) Was() []int { return o.was }

// ownTypes are the types of what asof notes for itself, which no schema has.
func ownTypes() []*Type { return []*Type{actorType(), archiveType(), retentionType(), schemaType()} }

// IsOwn reports whether a collection holds what asof notes for itself, and no documents.
func IsOwn(collection string) bool {
	return slices.ContainsFunc(ownTypes(), func(t *Type) bool { return t.Collection == collection })
}

// CollectionsOf says what an engine must hold for the types: a collection for
// each, with the indexes that they declare, one for its drafts, one for its tags, and those that asof has for itself.
func CollectionsOf(types []*Type) (out []driver.Collection) {
	for _, t := range ownTypes() {
		out = append(out, driver.Collection{Name: t.Collection})
	}
	for _, t := range types {
		out = append(out, t.collections()...)
	}
	return out
}

// collections are those of the type, of its drafts and of its tags.
func (t *Type) collections() (out []driver.Collection) {
	for _, kept := range []*Type{t, newDraftType(t), newTagType(t)} {
		out = append(out, driver.Collection{Name: kept.Collection, Indexes: indexesOf(kept.Fields, nil, nil, nil)})
	}
	return out
}

func indexesOf(fields []Field, path []string, seen []*ObjectType, out []driver.Index) []driver.Index {
	for i := range fields {
		f := &fields[i]
		stored := f.Stored
		if stored == "" {
			stored = f.Name
		}
		at := append(slices.Clone(path), stored)
		switch {
		case f.Kind == KindObject && !f.List && f.Object != nil && !slices.Contains(seen, f.Object):
			out = indexesOf(f.Object.Fields, at, append(slices.Clone(seen), f.Object), out)
		case f.Indexed && f.Kind != KindObject && f.Kind != KindJSON:
			out = append(out, driver.Index{Path: at, Kind: f.driverKind(), List: f.List})
		}
	}
	return out
}

// driverKind is how values of the field compare.
func (f *Field) driverKind() driver.Kind {
	switch f.Kind {
	case KindInt:
		return driver.KindInt
	case KindFloat:
		return driver.KindFloat
	case KindBoolean:
		return driver.KindBool
	case KindDateTime:
		return driver.KindInstant
	case KindDate:
		return driver.KindDate
	case KindDecimal:
		return driver.KindDecimal
	default:
		return driver.KindString
	}
}
