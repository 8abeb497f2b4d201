package record

import (
	"encoding/json"
	"fmt"
	"slices"

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

// Field returns the field with a GraphQL name, nil if there is none.
func (o *ObjectType) Field(name string) *Field {
	if i, ok := o.byName[name]; ok {
		return &o.Fields[i]
	}
	return nil
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
			out = append(out, driver.Index{Path: at, Kind: f.DriverKind(), List: f.List})
		}
	}
	return out
}

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
