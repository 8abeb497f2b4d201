package storage

import (
	"bytes"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// Document is one version of a document, read at an instant. It may be read
// from any number of goroutines.
type Document struct {
	Object
	store *Store
	t     *record.Type
	v     *driver.Version
	// at is the instant at which references resolve, and seen the one up to
	// which anything about the document may be known.
	at, seen driver.Instant
	pinned   bool // the past was asked for: the id names the version
	batch    *batch
	failed   error // why nothing can be read of it, see GetKeys
}

// batch is what was read together: the documents of a page or of a list of
// references, some of which may be nil. It is complete before the first of its documents is handed out.
type batch struct{ docs []*Document }

func (s *Store) newDocument(t *record.Type, v *driver.Version, at, seen driver.Instant, pinned bool) *Document {
	d := &Document{}
	s.fillDocument(d, t, v, at, seen, pinned)
	return d
}

// fillDocument makes a document in memory that is there already: those of a
// page are allocated together.
func (s *Store) fillDocument(d *Document, t *record.Type, v *driver.Version, at, seen driver.Instant, pinned bool) {
	d.store, d.t, d.v, d.at, d.seen, d.pinned = s, t, v, at, seen, pinned
	d.doc, d.typ, d.raw = d, t.Object, v.Data
}

// IsNode marks the GraphQL interface Node.
func (d *Document) IsNode() {}

// IsDocument marks the GraphQL interface Document.
func (d *Document) IsDocument() {}

// ID is the global id: with the version number when the past was read. That of a document in
// a draft names the draft, and is for caches only.
func (d *Document) ID() string {
	return string(d.AppendID(make([]byte, 0, len(d.t.Name)+len(d.v.Key)+8)))
}

// AppendID appends the global id, without quotes.
func (d *Document) AppendID(dst []byte) []byte {
	if inDraft(d.t, d.v) {
		return append(appendID(dst, d.t.Name, d.v.Key, 0), "@draft-"+d.v.Group...)
	}
	return appendID(dst, d.t.Name, d.v.Key, d.idNumber())
}

func (d *Document) idNumber() int64 {
	if d.pinned || !d.v.Current() {
		return d.v.Number
	}
	return 0
}

// Key is the document's own id.
func (d *Document) Key() string { return d.v.Key }

// Version is the number of the version that was read.
func (d *Document) Version() int { return int(d.v.Number) }

// VersionInfo describes that version.
func (d *Document) VersionInfo() *VersionInfo { return &VersionInfo{typ: d.t, v: d.v, seen: d.seen} }

// Type is the document's type.
func (d *Document) Type() *record.Type { return d.t }

// At is the instant at which the document's references resolve.
func (d *Document) At() driver.Instant { return d.at }

// Pinned reports whether the past was asked for. Then the ids of this document
// and of those that it refers to name their versions.
func (d *Document) Pinned() bool { return d.pinned }

// Base returns the document itself, through any model that embeds it.
func (d *Document) Base() *Document { return d }

func (d *Document) describe() string {
	return fmt.Sprintf("%s %q, version %d,", d.t.Name, d.v.Key, d.v.Number)
}

// inDraft reports whether a version of a document of the type is what contentOf returns.
func inDraft(t *record.Type, v *driver.Version) bool { return v.Collection != t.Collection }

// inBatch makes documents siblings.
func inBatch(docs []*Document) {
	b := &batch{docs}
	for _, d := range docs {
		if d != nil {
			d.batch = b
		}
	}
}

// latest is an instant after every commit at which a version is still current.
const latest = driver.Instant(math.MaxInt64 - 1)

// Of returns the document that the object lies in.
func (o *Object) Of() *Document { return o.doc }

// EachRef calls fn with every key that the same field holds in the documents
// that were read together with this one, until it returns false. Values that are not keys are left out: reading the
// field reports them.
func (d *Document) EachRef(field int, fn func(of *Document, key string) (more bool)) {
	docs := []*Document{d}
	if d.batch != nil {
		docs = d.batch.docs
	}
	for _, of := range docs {
		if of == nil || of.t != d.t {
			continue
		}
		more := true
		each := func(raw []byte) bool {
			if key, ok := rawjson.Unquote(raw); ok {
				more = fn(of, key)
			}
			return more
		}
		if raw := of.value(field); !of.typ.Fields[field].List {
			each(raw)
		} else {
			rawjson.Elements(raw, func(start, end int) bool { return each(raw[start:end]) })
		}
		if !more {
			return
		}
	}
}

// encodeID makes a global id: Type:key, or Type:key@number for a version. In
// the key, percent signs, at signs and control characters are percent-encoded.
func encodeID(typeName, key string, number int64) string {
	return string(appendID(make([]byte, 0, len(typeName)+len(key)+8), typeName, key, number))
}

func appendID(b []byte, typeName, key string, number int64) []byte {
	b = append(append(b, typeName...), ':')
	const hex = "0123456789ABCDEF"
	for i := range len(key) {
		if c := key[i]; c == '%' || c == '@' || c < ' ' || c == 0x7f {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	if number > 0 {
		b = strconv.AppendInt(append(b, '@'), number, 10)
	}
	return b
}

// parseID is the inverse of encodeID; number is 0 where the id names none.
func parseID(id string) (typeName, key string, number int64, err error) {
	bad := func(why string) (string, string, int64, error) {
		return "", "", 0, fault.BadInput("id %s is malformed: %s; an id is the name of a type, a colon and a key, and for one version an at sign and its number, as in Type:some-key@17", fault.QuoteShort(id), why)
	}
	typeName, rest, ok := strings.Cut(id, ":")
	if !ok || typeName == "" {
		return bad("it does not begin with a type and a colon")
	}
	if encoded, digits, versioned := strings.Cut(rest, "@"); versioned {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || digits[0] == '+' || digits[0] == '0' {
			return bad("what follows the at sign is not a version number (an at sign in a key is written %40)")
		}
		rest, number = encoded, n
	}
	if key, err = url.PathUnescape(rest); err != nil {
		return bad("a percent sign is not followed by two hexadecimal digits (a percent sign in a key is written %25)")
	}
	if why := driver.KeyProblem(key); why != "" {
		return bad("its key " + why)
	}
	return typeName, key, number, nil
}

// Object is a view of a JSON object in stored form. It may be read from any
// number of goroutines. Fields are named by their index in ObjectType.Fields.
//
// Every accessor returns an *Error that names type, key, version and field, and
// says what to declare, where the stored value does not satisfy the schema.
type Object struct {
	doc *Document
	typ *record.ObjectType
	raw []byte
	// in is the object whose field the object is, or an element of; nil for the document.
	in    *Object
	field int
	// spans say where each field's value lies in raw; of a document that is found out when it is needed.
	spans []record.Span
	found atomic.Pointer[[]record.Span]
}

// index returns where each field's value lies in raw.
func (o *Object) index() []record.Span {
	if o.spans != nil {
		return o.spans
	}
	found := o.found.Load()
	if found == nil {
		found = o.doc.indexNoted()
		o.found.Store(found)
	}
	return *found
}

// stored returns the value as it is in the document; nil when missing.
func (o *Object) stored(i int) []byte {
	return o.index()[i].At(o.raw)
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

// elements calls fn with each element of a list; nil for null, which is an error where elements are not null. It returns false
// in isList where the field reads as null. A missing list is an empty one, and so is one
// that was erased and is never null.
func (o *Object) elements(i int, fn func(raw []byte) error) (isList bool, err error) {
	raw, f := o.value(i), &o.typ.Fields[i]
	if raw == nil {
		stored := o.stored(i)
		if stored == nil || f.NonNull && rawjson.Erased(stored) {
			return true, nil
		}
		return false, o.absent(i)
	}
	ok := rawjson.Elements(raw, func(start, end int) bool {
		switch elem := raw[start:end:end]; {
		case !rawjson.IsNull(elem):
			err = fn(elem)
		case f.ElemNonNull || f.Kind == record.KindRef:
			err = o.nullElement(i)
		default:
			err = fn(nil)
		}
		return err == nil
	})
	if err == nil && !ok {
		err = o.mistyped(i, raw)
	}
	return true, err
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
	return list(o, i, func(raw []byte) (*Object, error) { return o.child(i, raw) })
}

// EachObject calls fn with each object of the list that Objects reads, nil for null, unless there is an
// error in the list. It returns false where the field reads as null.
func (o *Object) EachObject(i int, fn func(*Object)) (bool, error) {
	isList, err := o.elements(i, func(raw []byte) error {
		if len(raw) > 0 && raw[0] != '{' {
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
		child, err := o.child(i, raw)
		if err == nil {
			fn(child)
		}
		return err
	})
}

func (o *Object) child(i int, raw []byte) (*Object, error) {
	if raw[0] != '{' {
		return nil, o.mistyped(i, raw)
	}
	t := o.typ.Fields[i].Object
	return &Object{doc: o.doc, typ: t, raw: raw, in: o, field: i, spans: record.Index(t, raw)}, nil
}

// longList is the length of a list in bytes from which on its elements are counted first.
const longList = 4 << 10

// AppendRefs appends the keys that a reference or a list of references holds,
// as text. It returns true for null. What is appended is only read, and only as
// long as the object is there.
func (o *Object) AppendRefs(dst [][]byte, i int) (keys [][]byte, null bool, err error) {
	f := &o.typ.Fields[i]
	read := func(raw []byte) error {
		if raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
			dst = append(dst, raw[1:len(raw)-1])
			return nil
		}
		key, ok := record.ReadText(f, raw)
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
	name := o.typ.Fields[field].Name
	if o.in == nil {
		return name
	}
	return o.in.fieldPath(o.field) + "." + name
}

// noted is what is kept beside a version that the engine returns more than once:
// where the members of its data lie.
type noted struct {
	typ   *record.ObjectType
	data  *byte // the first of the data that the spans are about
	spans []record.Span
}

// indexNoted finds the document's declared members: once for all who read the
// version, where the engine keeps it.
func (d *Document) indexNoted() *[]record.Span {
	if d.v.Notes == nil || len(d.raw) == 0 {
		spans := record.Index(d.typ, d.raw)
		return &spans
	}
	if n, ok := d.v.Notes.Get().(*noted); ok && n.typ == d.typ && n.data == &d.raw[0] {
		return &n.spans
	}
	n := &noted{d.typ, &d.raw[0], record.Index(d.typ, d.raw)}
	d.v.Notes.Keep(n)
	return &n.spans
}

// RawField returns the field's value as JSON text ready to be copied into an
// answer: what the accessors return, without decoding it. Nil is null. It is
// for fields of every kind but Object.
func (o *Object) RawField(i int) ([]byte, error) {
	f := &o.typ.Fields[i]
	if f.List {
		return o.rawList(i)
	}
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	out, ok := record.RawScalar(f, raw)
	if !ok {
		return nil, o.mistyped(i, raw)
	}
	return out, nil
}

func (o *Object) rawList(i int) ([]byte, error) {
	f := &o.typ.Fields[i]
	same := true // every element can be copied as it is stored
	rebuilt := []byte{'['}
	build := func(elem []byte) error {
		out := []byte("null")
		if elem != nil {
			var ok bool
			if out, ok = record.RawScalar(f, elem); !ok {
				return o.mistyped(i, elem)
			}
			same = same && &out[0] == &elem[0]
		}
		if !same {
			rebuilt = append(append(rebuilt, out...), ',')
		}
		return nil
	}
	isList, err := o.elements(i, build)
	if err != nil || !isList {
		return nil, err
	}
	raw := o.value(i)
	switch {
	case raw == nil:
		return []byte("[]"), nil
	case same:
		return raw, nil
	}
	rebuilt = rebuilt[:1] // again, now that it is known that a copy is needed
	if _, err := o.elements(i, build); err != nil {
		return nil, err
	}
	rebuilt[len(rebuilt)-1] = ']'
	return rebuilt, nil
}
