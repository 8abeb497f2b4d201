// Package record says what documents are made of, and reads and changes their bytes by that: types,
// with those of drafts and tags, fields, and what reads, writes, checks, compares and shows the
// values of fields as they are stored. It knows neither times nor stores, and versions only to say which
// of them a type keeps.
//
// Stored bytes are never decoded as a whole. Members that a type does not declare are kept and never
// shown.
package record

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

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
	Object *ObjectType // the same fields, indexed, with what was left out filled in; nil before a store was made of the type
	Drafts *Type       // of its drafts; filled by prepare
	Tags   *Type       // of its tags; filled by prepare

	copiesOnce sync.Once
	copies     []Copy // as they are prepared
}

// Auth says who may do what. Nil lists of roles let in everybody, empty ones nobody.
type Auth struct {
	Read, Write []string
	History     []string // who may read the past
	Erase       []string // who may erase; nil: nobody
	Rows        string   // a rule of package rule: which documents; "": all
}

// Copied are the type's copies as a store has prepared them.
func (t *Type) Copied() []Copy { return t.copies }

// Prepare indexes types, and finds what they refer to in each other. They are the generator's, which has checked that
// they do not contradict themselves. It may be called more than once, and concurrently, with the same types.
func Prepare(types []*Type) {
	byName := map[string]*Type{}
	for _, t := range types {
		byName[t.Name] = t
		t.prepare()
	}
	for _, t := range types {
		t.prepareCopies(byName)
	}
}

// prepare indexes the type's fields, once.
func (t *Type) prepare() {
	t.once.Do(func() {
		if t.Object = indexed(t.Name, t.Fields); t.Drafts == nil {
			t.Drafts, t.Tags = newDraftType(t), newTagType(t)
			t.Drafts.prepare()
			t.Tags.prepare()
		}
	})
}

// Collections are those of the type, of its drafts and of its tags.
func (t *Type) Collections() (out []driver.Collection) {
	for _, kept := range []*Type{t, newDraftType(t), newTagType(t)} {
		c := driver.Collection{Name: kept.Collection}
		for _, f := range kept.Fields {
			if f.Indexed {
				c.Indexes = append(c.Indexes, driver.Index{Path: []string{cmp.Or(f.Stored, f.Name)}, Kind: f.DriverKind(), List: f.List})
			}
		}
		out = append(out, c)
	}
	return out
}

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
	Immutable   bool        // of a document's own field: a value stays while the document exists
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
// read in today's form, see ObjectType.Today.
type Was struct {
	Single  bool              // of a list: one value, which reads as a list of it
	Members []string          // of an object: the stored names of members beside it, which are in it now
	Enum    map[string]string // of an enum: values that are called otherwise now
}

// ObjectType describes the objects nested in documents.
type ObjectType struct {
	Name   string
	Fields []Field

	byName, byStored map[string]int // of the copies that prepare makes
	was              []int          // the fields that were in another form, or hold something that was
}

// indexed returns an object type with an index of its fields, and of those of the objects in it.
func indexed(name string, fields []Field) *ObjectType {
	o := &ObjectType{Name: name, Fields: slices.Clone(fields), byName: map[string]int{}, byStored: map[string]int{}}
	for i := range o.Fields {
		f := &o.Fields[i]
		f.Stored = cmp.Or(f.Stored, f.Name)
		if value, err := normal.Value(f.Default); err == nil { // as it is stored
			f.Default = value
		}
		if f.Object != nil {
			f.Object = indexed(f.Object.Name, f.Object.Fields)
		}
		o.byName[f.Name], o.byStored[f.Stored] = i, i
		if f.Was.Single || f.Was.Members != nil || f.Was.Enum != nil || f.Object != nil && f.Object.was != nil {
			o.was = append(o.was, i)
		}
	}
	return o
}

// Field returns the field with a GraphQL name, nil if there is none.
func (o *ObjectType) Field(name string) *Field {
	if i, ok := o.byName[name]; ok {
		return &o.Fields[i]
	}
	return nil
}

// place returns the place of the field with a stored name, as it lies in a document; -1 if there
// is none. The next one is looked at first: members mostly come in the order in which they are declared.
func (o *ObjectType) place(name []byte, next int) int {
	if next < len(o.Fields) && o.Fields[next].Stored == string(name) {
		return next
	}
	i, ok := o.byStored[string(name)]
	if !ok {
		i, ok = o.byStored[rawjson.Name(name)]
	}
	if !ok {
		return -1
	}
	return i
}

// StoredAs returns the place of the field with a stored name, -1 if there is none.
func (o *ObjectType) StoredAs(name string) int {
	if i, ok := o.byStored[name]; ok {
		return i
	}
	return -1
}

// Was are the places of the fields that were in another form, or hold something that was.
func (o *ObjectType) Was() []int { return o.was }

// DriverKind is how values of the field compare.
func (f *Field) DriverKind() driver.Kind {
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

// Driver is the field of a document, at its top level, as engines know it.
func (f *Field) Driver() driver.Field {
	return driver.Field{Path: []string{f.Stored}, Kind: f.DriverKind()}
}

// Sortable reports whether lists can be sorted by the field.
func (f *Field) Sortable() bool {
	return !f.List && f.Kind != KindObject && f.Kind != KindJSON
}

var kindNames = [...]string{
	KindString: "String", KindID: "ID", KindInt: "Int", KindFloat: "Float", KindBoolean: "Boolean", KindDateTime: "DateTime",
	KindDate: "Date", KindDecimal: "Decimal", KindJSON: "JSON", KindEnum: "String", KindObject: "JSON", KindRef: "ID",
}

// ElemName is the GraphQL type of the field without its list.
func (f *Field) ElemName() string {
	switch {
	case f.Kind == KindObject && f.Object != nil:
		return f.Object.Name
	case f.Kind == KindRef:
		return f.Ref
	case int(f.Kind) < len(kindNames):
		return kindNames[f.Kind]
	}
	return "?"
}

// TypeName is the GraphQL type of the field; without its own non-null mark when
// marks is false.
func (f *Field) TypeName(marks bool) string {
	name := f.ElemName()
	if f.List {
		if f.ElemNonNull && f.Kind != KindRef {
			name += "!"
		}
		name = "[" + name + "]"
	}
	if f.NonNull && marks {
		name += "!"
	}
	return name
}

// Keep says which versions of a type's documents are kept: a version stays while either
// wants it, and in any case as long as it is the document's last one, and for Grace after
// that. The zero Keep keeps all.
//
// What is pruned keeps its number, its time and its hash, about 100 bytes: so numbers do
// not shift, and whoever reads at it is told. Lists as of an instant are exact from the
// type's horizon on, which is raised before anything is pruned, and looked at after a list
// was read; so neither waits for the other.
type Keep struct {
	Versions int    // the last ones of each document; 0: not by number
	For      Period // those that were current within it; zero: not by time
}

// Lets reports whether nothing keeps a version, of a document with a last one.
func (k *Keep) Lets(v, last *driver.Version, now driver.Instant) bool {
	return v.Number < last.Number && v.SupersededAt <= GraceBefore(now) &&
		(k.Versions == 0 || v.Number <= last.Number-int64(k.Versions)) &&
		(k.For == Period{} || v.SupersededAt <= k.For.Before(now))
}

// Period is a time in calendar units, in UTC.
type Period struct {
	Years, Months, Days int
	Time                time.Duration
}

// Before is the instant that lies a period before another one; 0 where that is before 1970.
// A month that lacks the day counts from its last one, so that later instants have later ones.
func (p Period) Before(at driver.Instant) driver.Instant {
	now := at.Time()
	t := now.AddDate(-p.Years, -p.Months, 0)
	if t.Day() != now.Day() {
		t = t.AddDate(0, 0, -t.Day())
	}
	t = t.AddDate(0, 0, -p.Days).Add(-p.Time)
	if t.Year() < 1970 { // an Instant may be too small for it
		return 0
	}
	return driver.InstantOf(t)
}

// Grace is how long a version stays after it was superseded, whatever Keep says: no operation
// takes as long, so that nothing is pruned which one has seen.
const Grace = time.Hour

// GraceBefore is the instant that lies Grace before another one.
func GraceBefore(at driver.Instant) driver.Instant { return at - driver.Instant(Grace.Microseconds()) }

// The fields of a draft, by their place.
const (
	DraftKey = iota
	DraftBase
	DraftAuthor
	DraftShared
	DraftTitle
	DraftExpires
	DraftContent
)

// newDraftType returns the type of the drafts of a type, which declares nothing as required.
func newDraftType(t *Type) *Type {
	d := &Type{Name: t.Name + "Draft", Collection: draftCollection(t), Fields: []Field{
		DraftKey:     {Name: "documentKey", Kind: KindID, Indexed: true},
		DraftBase:    {Name: "baseVersion", Kind: KindInt}, // 0: of a new document
		DraftAuthor:  {Name: "author", Kind: KindID},
		DraftShared:  {Name: "shared", Kind: KindBoolean, Default: json.RawMessage("false")},
		DraftTitle:   {Name: "title", Kind: KindString},
		DraftExpires: {Name: "expiresAt", Kind: KindDateTime},
		DraftContent: {Name: "document", Kind: KindObject, Object: incomplete(&ObjectType{Name: t.Name, Fields: t.Fields})},
	}}
	d.Drafts, d.Tags = d, d // it has none of its own
	return d
}

// draftCollection is where the drafts of a type are kept.
func draftCollection(t *Type) string { return t.Collection + DraftSuffix }

// DraftSuffix ends the names of the collections of drafts.
const DraftSuffix = ".drafts"

// incomplete returns a type without required fields.
func incomplete(o *ObjectType) *ObjectType {
	out := &ObjectType{Name: o.Name, Fields: slices.Clone(o.Fields)}
	for i := range out.Fields {
		f := &out.Fields[i]
		if f.NonNull, f.Indexed = false, false; f.Object != nil {
			f.Object = incomplete(f.Object)
		}
	}
	return out
}

// The fields of a tag, by their place.
const (
	TagDocument = iota
	TagName
	TagVersion
)

// newTagType returns the type of the tags of a type.
func newTagType(t *Type) *Type {
	k := &Type{Name: t.Name + "Tag", Collection: tagCollection(t), Fields: []Field{
		TagDocument: {Name: "documentKey", Kind: KindID, Indexed: true},
		TagName:     {Name: "name", Kind: KindString, Indexed: true},
		TagVersion:  {Name: "number", Kind: KindInt},
	}}
	k.Drafts, k.Tags = k, k // it has none of its own
	return k
}

// tagCollection is where the tags of a type are kept.
func tagCollection(t *Type) string { return t.Collection + TagSuffix }

// TagSuffix ends the names of the collections of tags.
const TagSuffix = ".tags"

// Copy is a field that documents show and do not store: it reads as a field of the document
// that a reference of theirs leads to, at the instant of the reference. It is null where
// there is no such document.
type Copy struct {
	Name string   // in the GraphQL schema
	From []string // the reference, nested objects and the field, by their names in the schema

	// What follows is filled by prepare.

	Ref    int   // the place of the reference
	Of     *Type // what it leads to
	In     []int // the places of the objects that the field is nested in
	Place  int   // the place of the field in the innermost
	Field  *Field
	Stored []string // the path to it
}

// Copy returns the copied field of a name; nil where there is none.
func (t *Type) Copy(name string) *Copy {
	if i := slices.IndexFunc(t.Copies, func(c Copy) bool { return c.Name == name }); i >= 0 {
		return &t.copies[i]
	}
	return nil
}

// prepareCopies finds what the copied fields are copied from, once.
func (t *Type) prepareCopies(types map[string]*Type) {
	t.copiesOnce.Do(func() {
		t.copies = slices.Clone(t.Copies)
		for i := range t.copies {
			c := &t.copies[i]
			c.Ref = t.Object.byName[c.From[0]]
			c.Of = types[t.Object.Fields[c.Ref].Ref]
			in := c.Of.Object
			for _, name := range c.From[1:] {
				if c.Field != nil {
					c.In, in = append(c.In, c.Place), c.Field.Object
				}
				c.Place = in.byName[name]
				c.Field = &in.Fields[c.Place]
				c.Stored = append(c.Stored, c.Field.Stored)
			}
		}
	})
}

// Member is the stored name of the member of the source that holds the field.
func (c *Copy) Member() string { return c.Stored[0] }

// Target is the field in the documents that it is copied from.
func (c *Copy) Target() driver.Field {
	return driver.Field{Path: c.Stored, Kind: c.Field.DriverKind()}
}

// Reference is the reference in the documents that show the field.
func (c *Copy) Reference(t *Type) driver.Field {
	return driver.Field{Path: []string{t.Object.Fields[c.Ref].Stored}, Kind: driver.KindString}
}

// Refers is the condition that the reference is to one of some documents.
func (c *Copy) Refers(t *Type, keys []driver.Value) driver.Filter {
	return driver.In{Field: c.Reference(t), Values: keys}
}
