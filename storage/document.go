package storage

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// Document is one version of a document, read at an instant. It may be read
// from any number of goroutines.
type Document struct {
	Object
	store *Store
	t     *Type
	v     *driver.Version
	// at is the instant at which references resolve, and seen the one up to
	// which anything about the document may be known.
	at, seen driver.Instant
	pinned   bool // the past was asked for: the id names the version
	batch    *Batch
	failed   error // why nothing can be read of it, see GetKeys
}

// Batch is what was read together: the documents of a page or of a list of
// references. Loaders load the references of all of them at once.
type Batch struct {
	// Docs is complete before the first of its documents is handed out; some
	// may be nil.
	Docs []*Document
}

func (s *Store) newDocument(t *Type, v *driver.Version, at, seen driver.Instant, pinned bool) *Document {
	d := &Document{}
	s.fillDocument(d, t, v, at, seen, pinned)
	return d
}

// fillDocument makes a document in memory that is there already: those of a
// page are allocated together.
func (s *Store) fillDocument(d *Document, t *Type, v *driver.Version, at, seen driver.Instant, pinned bool) {
	d.store, d.t, d.v, d.at, d.seen, d.pinned = s, t, v, at, seen, pinned
	d.doc, d.typ, d.raw = d, t.object, v.Data
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
	if d.t.inDraft(d.v) {
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
func (d *Document) Type() *Type { return d.t }

// At is the instant at which the document's references resolve.
func (d *Document) At() driver.Instant { return d.at }

// Pinned reports whether the past was asked for. Then the ids of this document
// and of those that it refers to name their versions.
func (d *Document) Pinned() bool { return d.pinned }

// Siblings are the documents that were read together with this one, itself
// among them; nil for one that was read alone.
func (d *Document) Siblings() *Batch { return d.batch }

// Base returns the document itself, through any model that embeds it.
func (d *Document) Base() *Document { return d }

func (d *Document) describe() string {
	return fmt.Sprintf("%s %q, version %d,", d.t.Name, d.v.Key, d.v.Number)
}

// inBatch makes documents siblings.
func inBatch(docs []*Document) {
	b := &Batch{Docs: docs}
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
// that were read together with this one, and in all the objects at the same
// place in them. Values that are not keys are left out: reading the field
// reports them.
func (o *Object) EachRef(field int, fn func(d *Document, key string)) {
	docs := []*Document{o.doc}
	if o.doc.batch != nil {
		docs = o.doc.batch.Docs
	}
	for _, d := range docs {
		if d != nil && d.t == o.doc.t {
			d.eachRef(o.chain, field, func(key string) { fn(d, key) })
		}
	}
}

// eachRef follows a chain of fields into nested objects.
func (o *Object) eachRef(chain []int, field int, fn func(key string)) {
	list := func(i int, each func(raw []byte)) {
		raw := o.value(i)
		if raw == nil {
			return
		}
		if !o.typ.Fields[i].List {
			each(raw)
			return
		}
		rawjson.Elements(raw, func(start, end int) bool {
			each(raw[start:end:end])
			return true
		})
	}
	if len(chain) == 0 {
		list(field, func(raw []byte) {
			if key, ok := rawjson.Unquote(raw); ok {
				fn(key)
			}
		})
		return
	}
	list(chain[0], func(raw []byte) {
		if child, err := o.child(chain[0], raw); err == nil {
			child.eachRef(chain[1:], field, fn)
		}
	})
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
		return "", "", 0, badInput("id %s is malformed: %s; an id is the name of a type, a colon and a key, and for one version an at sign and its number, as in Type:some-key@17", quoteShort(id), why)
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
	key, ok = unescapeKey(rest)
	if !ok {
		return bad("a percent sign is not followed by two hexadecimal digits (a percent sign in a key is written %25)")
	}
	if why := KeyProblem(key); why != "" {
		return bad("its key " + why)
	}
	return typeName, key, number, nil
}

func unescapeKey(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 > len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), true
}

// maxKey is the length of the longest key, in bytes.
const maxKey = 512

// KeyProblem says why no document can have the key, such as "is empty"; "" if
// one can.
func KeyProblem(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxKey:
		return "is longer than " + strconv.Itoa(maxKey) + " bytes"
	case !utf8.ValidString(key):
		return "is not valid UTF-8"
	case strings.ContainsRune(key, 0):
		return "contains a NUL character"
	}
	return ""
}

// quoteShort quotes what a user gave, without repeating all of it.
func quoteShort(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
