package storage

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/seal"
)

// Object is a view of a JSON object in stored form. It may be read from any
// number of goroutines. Fields are named by their index in ObjectType.Fields.
//
// Every accessor returns an *Error that names type, key, version and field, and
// says what to declare, where the stored value does not satisfy the schema.
type Object struct {
	doc *Document
	typ *ObjectType
	// chain are the fields that lead from the document to the object.
	chain []int
	raw   []byte
	// spans say where each field's value lies in raw, where that was known when
	// the object was made; otherwise it is found out when it is needed.
	spans []span
	found atomic.Pointer[[]span]
}

// index returns where each field's value lies in raw.
func (o *Object) index() []span {
	if o.spans != nil {
		return o.spans
	}
	if found := o.found.Load(); found != nil {
		return *found
	}
	var found []span
	if o == &o.doc.Object {
		found = o.doc.indexNoted()
	} else {
		found = indexMembers(o.typ, o.raw)
	}
	o.found.Store(&found)
	return found
}

// stored returns the value as it is in the document; nil when missing.
func (o *Object) stored(i int) []byte {
	return o.index()[i].at(o.raw)
}

// value returns the value that the field reads as: the stored one, or its
// default; nil for null, missing and erased.
func (o *Object) value(i int) []byte {
	raw := o.stored(i)
	if rawjson.IsNull(raw) || rawjson.Erased(raw) {
		return o.typ.Fields[i].Default
	}
	return raw
}

func one[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) (T, error) {
	var zero T
	raw := o.value(i)
	if raw == nil {
		return zero, o.missing(i)
	}
	v, ok := read(&o.typ.Fields[i], raw)
	if !ok {
		return zero, o.mistyped(i, raw)
	}
	return v, nil
}

func opt[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) (*T, error) {
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	v, ok := read(&o.typ.Fields[i], raw)
	if !ok {
		return nil, o.mistyped(i, raw)
	}
	return &v, nil
}

// absent is the error of a field without a value; nil where it reads as null, as where something of the version was
// erased: a migration that does not know of that may have left it elsewhere.
func (o *Object) absent(i int) error {
	stored, v := o.stored(i), o.doc.v
	f := &o.typ.Fields[i]
	if !f.NonNull || f.Erasable && (rawjson.Erased(stored) || stored == nil && (v.Deleted && v.Op == driver.OpErase || seal.Erased(v.Seal))) {
		return nil
	}
	return o.missing(i)
}

// elements calls fn with each element of a list; nil for null. It returns false
// in isList where the field reads as null. A missing list is an empty one, and so is one
// that was erased and is never null.
func (o *Object) elements(i int, fn func(raw []byte) error) (isList bool, err error) {
	raw := o.value(i)
	if raw == nil {
		stored := o.stored(i)
		if stored == nil || o.typ.Fields[i].NonNull && rawjson.Erased(stored) {
			return true, nil
		}
		return false, o.absent(i)
	}
	ok := rawjson.Elements(raw, func(start, end int) bool {
		elem := raw[start:end:end]
		if rawjson.IsNull(elem) {
			elem = nil
		}
		err = fn(elem)
		return err == nil
	})
	if err == nil && !ok {
		err = o.mistyped(i, raw)
	}
	return true, err
}

func list[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) ([]T, error) {
	out := []T{}
	isList, err := o.elements(i, func(raw []byte) error {
		if raw == nil {
			return o.nullElement(i)
		}
		v, ok := read(&o.typ.Fields[i], raw)
		if !ok {
			return o.mistyped(i, raw)
		}
		out = append(out, v)
		return nil
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

func optList[T any](o *Object, i int, read func(*Field, []byte) (T, bool)) ([]*T, error) {
	out := []*T{}
	isList, err := o.elements(i, func(raw []byte) error {
		if raw == nil {
			out = append(out, nil)
			return nil
		}
		v, ok := read(&o.typ.Fields[i], raw)
		if !ok {
			return o.mistyped(i, raw)
		}
		out = append(out, &v)
		return nil
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

// String reads a non-null String, ID, Date, Decimal, Enum or Ref.
func (o *Object) String(i int) (string, error) { return one(o, i, readText) }

// OptString reads a nullable String, ID, Date, Decimal, Enum or Ref.
func (o *Object) OptString(i int) (*string, error) { return opt(o, i, readText) }

// Strings reads a list of such values; its elements are not null.
func (o *Object) Strings(i int) ([]string, error) { return list(o, i, readText) }

// OptStrings reads a list of such values with nullable elements.
func (o *Object) OptStrings(i int) ([]*string, error) { return optList(o, i, readText) }

// Int reads a non-null Int.
func (o *Object) Int(i int) (int, error) { return one(o, i, readInt) }

// OptInt reads a nullable Int.
func (o *Object) OptInt(i int) (*int, error) { return opt(o, i, readInt) }

// Ints reads a list of Int; its elements are not null.
func (o *Object) Ints(i int) ([]int, error) { return list(o, i, readInt) }

// OptInts reads a list of nullable Int.
func (o *Object) OptInts(i int) ([]*int, error) { return optList(o, i, readInt) }

// Float reads a non-null Float.
func (o *Object) Float(i int) (float64, error) { return one(o, i, readFloat) }

// OptFloat reads a nullable Float.
func (o *Object) OptFloat(i int) (*float64, error) { return opt(o, i, readFloat) }

// Floats reads a list of Float; its elements are not null.
func (o *Object) Floats(i int) ([]float64, error) { return list(o, i, readFloat) }

// OptFloats reads a list of nullable Float.
func (o *Object) OptFloats(i int) ([]*float64, error) { return optList(o, i, readFloat) }

// Bool reads a non-null Boolean.
func (o *Object) Bool(i int) (bool, error) { return one(o, i, readBool) }

// OptBool reads a nullable Boolean.
func (o *Object) OptBool(i int) (*bool, error) { return opt(o, i, readBool) }

// Bools reads a list of Boolean; its elements are not null.
func (o *Object) Bools(i int) ([]bool, error) { return list(o, i, readBool) }

// OptBools reads a list of nullable Boolean.
func (o *Object) OptBools(i int) ([]*bool, error) { return optList(o, i, readBool) }

// Instant reads a non-null DateTime.
func (o *Object) Instant(i int) (driver.Instant, error) { return one(o, i, readInstant) }

// OptInstant reads a nullable DateTime.
func (o *Object) OptInstant(i int) (*driver.Instant, error) { return opt(o, i, readInstant) }

// Instants reads a list of DateTime; its elements are not null.
func (o *Object) Instants(i int) ([]driver.Instant, error) { return list(o, i, readInstant) }

// OptInstants reads a list of nullable DateTime.
func (o *Object) OptInstants(i int) ([]*driver.Instant, error) { return optList(o, i, readInstant) }

// JSON reads a JSON value; nil for null where the field is nullable.
func (o *Object) JSON(i int) (json.RawMessage, error) {
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	return json.RawMessage(raw), nil
}

// JSONs reads a list of JSON values; nil elements are null.
func (o *Object) JSONs(i int) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	isList, err := o.elements(i, func(raw []byte) error {
		if raw == nil && o.typ.Fields[i].ElemNonNull {
			return o.nullElement(i)
		}
		out = append(out, json.RawMessage(raw))
		return nil
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

// Object reads a nested object; nil for null where the field is nullable.
func (o *Object) Object(i int) (*Object, error) {
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	return o.child(i, raw)
}

// Objects reads a list of nested objects; nil elements are null.
func (o *Object) Objects(i int) ([]*Object, error) {
	out := []*Object{}
	isList, err := o.elements(i, func(raw []byte) error {
		if raw == nil {
			if o.typ.Fields[i].ElemNonNull {
				return o.nullElement(i)
			}
			out = append(out, nil)
			return nil
		}
		child, err := o.child(i, raw)
		out = append(out, child)
		return err
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

// Nested is Object for callers that look at one nested object after another:
// into, which is theirs alone, becomes the nested object. It returns false for
// null.
func (o *Object) Nested(into *Object, i int) (bool, error) {
	raw := o.value(i)
	switch {
	case raw == nil:
		return false, o.absent(i)
	case raw[0] != '{':
		return false, o.mistyped(i, raw)
	}
	o.turn(into, i, raw)
	return true, nil
}

// EachNested is Objects in the same way: fn is called with each object of the
// list, nil for null, unless there is an error in the list. It returns false for
// null.
func (o *Object) EachNested(into *Object, i int, fn func(*Object)) (bool, error) {
	isList, err := o.elements(i, func(raw []byte) error {
		switch {
		case raw == nil && o.typ.Fields[i].ElemNonNull:
			return o.nullElement(i)
		case len(raw) > 0 && raw[0] != '{':
			return o.mistyped(i, raw)
		}
		return nil
	})
	if err != nil || !isList {
		return false, err
	}
	return o.elements(i, func(raw []byte) error {
		if raw == nil {
			fn(nil)
			return nil
		}
		o.turn(into, i, raw)
		fn(into)
		return nil
	})
}

// Forget drops what a nested object is a view of, and keeps its memory for the
// next.
func (o *Object) Forget() { o.doc, o.typ, o.raw = nil, nil, nil }

// turn makes a view of an object nested in o, reusing another's memory.
func (o *Object) turn(into *Object, i int, raw []byte) {
	t := o.typ.Fields[i].Object
	into.doc, into.typ, into.raw = o.doc, t, raw
	into.chain = append(append(into.chain[:0], o.chain...), i)
	n := len(t.Fields)
	into.spans = slices.Grow(into.spans[:0], n)[:n]
	clear(into.spans)
	indexInto(into.spans, t, raw)
}

func (o *Object) child(i int, raw []byte) (*Object, error) {
	if raw[0] != '{' {
		return nil, o.mistyped(i, raw)
	}
	chain := append(slices.Clip(o.chain), i)
	return &Object{doc: o.doc, typ: o.typ.Fields[i].Object, chain: chain, raw: raw}, nil
}

// RefKey reads the key that a single reference holds; nil for null.
func (o *Object) RefKey(i int) (*string, error) { return opt(o, i, readText) }

// RefKeys reads the keys that a list of references holds.
func (o *Object) RefKeys(i int) ([]string, error) { return list(o, i, readText) }

// longList is the length of a list in bytes from which on its elements are counted first.
const longList = 4 << 10

// AppendRefs appends the keys that a reference or a list of references holds,
// as text. It returns true for null. What is appended is only read, and only as
// long as the object is there.
func (o *Object) AppendRefs(dst [][]byte, i int) (keys [][]byte, null bool, err error) {
	f := &o.typ.Fields[i]
	read := func(raw []byte) error {
		if raw == nil {
			return o.nullElement(i)
		}
		if raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
			dst = append(dst, raw[1:len(raw)-1])
			return nil
		}
		key, ok := readText(f, raw)
		if !ok {
			return o.mistyped(i, raw)
		}
		dst = append(dst, []byte(key))
		return nil
	}
	raw := o.value(i)
	if f.List {
		if len(raw) > longList { // it is counted sooner than moved
			n := 0
			rawjson.Elements(raw, func(int, int) bool { n++; return true })
			dst = slices.Grow(dst, n)
		}
		isList, err := o.elements(i, read)
		return dst, !isList, err
	}
	if raw == nil {
		return dst, true, nil
	}
	err = read(raw)
	return dst, false, err
}

// fieldPath says where a field lies in the document.
func (o *Object) fieldPath(field int) string {
	var path strings.Builder
	t := o.doc.typ
	for _, i := range o.chain {
		path.WriteString(t.Fields[i].Name)
		path.WriteByte('.')
		t = t.Fields[i].Object
	}
	path.WriteString(t.Fields[field].Name)
	return path.String()
}

// span is a part of a stored object; 0,0 where the field is missing.
type span struct{ start, end uint32 }

// at returns the value that a span marks; nil where there is none.
func (s span) at(raw []byte) []byte {
	if s.end == 0 {
		return nil
	}
	return raw[s.start:s.end:s.end]
}

// noted is what is kept beside a version that the engine returns more than once:
// where the members of its data lie.
type noted struct {
	typ   *ObjectType
	data  *byte // the first of the data that the spans are about
	spans []span
}

// indexNoted finds the document's declared members: once for all who read the
// version, where the engine keeps it.
func (d *Document) indexNoted() []span {
	if d.v.Notes == nil || len(d.raw) == 0 {
		return indexMembers(d.typ, d.raw)
	}
	if n, ok := d.v.Notes.Get().(*noted); ok && n.typ == d.typ && n.data == &d.raw[0] {
		return n.spans
	}
	spans := indexMembers(d.typ, d.raw)
	d.v.Notes.Keep(&noted{d.typ, &d.raw[0], spans})
	return spans
}

// indexTogether indexes documents of one type that were read together and are
// about to be looked at, some of which may be nil: those whose engine keeps none
// of them in one allocation. Nobody else has the documents yet.
func indexTogether(t *Type, docs ...*Document) {
	var spans []span
	fields := len(t.object.Fields)
	for i, d := range docs {
		switch {
		case d == nil:
		case d.v.Notes != nil:
			d.spans = d.indexNoted()
		default:
			if spans == nil {
				spans = make([]span, (len(docs)-i)*fields)
			}
			d.spans, spans = spans[:fields:fields], spans[fields:]
			indexInto(d.spans, t.object, d.raw)
		}
	}
}

// indexMembers finds the declared members of an object.
func indexMembers(t *ObjectType, raw []byte) []span {
	spans := make([]span, len(t.Fields))
	indexInto(spans, t, raw)
	return spans
}

// indexInto fills an index, which is all zero, with as many places as the type
// has fields.
func indexInto(spans []span, t *ObjectType, raw []byte) {
	next := 0 // members mostly come in the order in which they are declared
	rawjson.Members(raw, func(name []byte, start, end int) bool {
		i := next
		if i >= len(t.Fields) || t.Fields[i].Stored != string(name) {
			var ok bool
			if i, ok = t.byStored[string(name)]; !ok {
				if i, ok = t.byStored[rawjson.Name(name)]; !ok {
					return true
				}
			}
		}
		spans[i] = span{uint32(start), uint32(end)}
		next = i + 1
		return true
	})
}
