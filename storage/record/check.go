package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/rawjson"
)

// maxMismatches is after how many mismatches of a document nothing more is looked for.
const maxMismatches = 1000

// Validate checks a document in normal form against the type, for versions that
// were recorded elsewhere. It returns the paths of the members that the type
// does not declare (stored names, with dots; those in lists without an index),
// and a *MismatchError for the first value that is not as the type declares it.
func (t *Type) Validate(data []byte) (undeclared []string, err error) {
	undeclared, mismatches, err := t.ValidateAll(data)
	if err == nil && len(mismatches) > 0 {
		err = mismatches[0]
	}
	return undeclared, err
}

// ValidateAll is Validate for those who keep what does not fit: it returns up to 1,000
// mismatches. The error is that of data that is no document.
func (t *Type) ValidateAll(data []byte) (undeclared []string, mismatches []*MismatchError, err error) {
	c := checker{exact: true}
	err = c.document(t, data)
	return c.undeclared, c.mismatches, err
}

// Unreadable returns what reading a document in normal form would fail at, up to
// 1,000 values. The error is that of data that is no document.
func (t *Type) Unreadable(data []byte) ([]*MismatchError, error) {
	c := checker{}
	err := c.document(t, data)
	return c.mismatches, err
}

// NewMismatches returns what cannot be read in data, and could be in what was there before, which
// may be nil. Paths are in the names of the schema.
func (t *Type) NewMismatches(was, data []byte) ([]*MismatchError, error) {
	c := checker{schema: true}
	if err := c.document(t, data); err != nil || len(c.mismatches) == 0 || was == nil {
		return c.mismatches, err
	}
	before := checker{schema: true}
	err := before.document(t, was)
	return slices.DeleteFunc(c.mismatches, func(m *MismatchError) bool {
		return slices.ContainsFunc(before.mismatches, func(n *MismatchError) bool { return n.Path == m.Path })
	}), err
}

// MismatchError says that a value in a document is not what its type declares.
type MismatchError struct {
	Path     string // in stored names, with dots, and indexes in brackets
	Expected string
	Found    string
	// Missing says that a value is required and there is none, or a null.
	Missing bool
	// Readable says that the value can be read all the same: a moment or a day
	// that is written in a way that is not accepted any more, or a number in JSON
	// that is too large.
	Readable bool
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: expected %s, found %s", e.Path, e.Expected, e.Found)
}

func nonEmpty(b []byte) []byte {
	if len(b) == 0 {
		return []byte("null")
	}
	return b
}

// checker walks a value and compares it with its declaration. The path is kept
// as a list of frames, and written out only for a mismatch.
type checker struct {
	exact      bool // moments and days must be written as they are accepted now
	schema     bool // paths are in the names of the GraphQL schema
	path       []step
	undeclared []string
	told       map[string]bool // what undeclared has
	mismatches []*MismatchError
}

// document checks a whole document. The error is about what is no document.
func (c *checker) document(t *Type, data []byte) error {
	t.prepare()
	if !c.object(t.Object, t.Object.Today(data)) {
		return fmt.Errorf("a document is a JSON object, not %s", Sample(nonEmpty(data)))
	}
	return nil
}

func (c *checker) stopped() bool { return len(c.mismatches) >= maxMismatches }

type step struct {
	name  string
	index int // in a list, where name is empty
}

func (c *checker) pathString() string {
	var b []byte
	for _, s := range c.path {
		switch {
		case s.name == "":
			b = append(strconv.AppendInt(append(b, '['), int64(s.index), 10), ']')
		case len(b) > 0:
			b = append(append(b, '.'), s.name...)
		default:
			b = append(b, s.name...)
		}
	}
	return string(b)
}

// undeclaredPath leaves the indexes out, so that one name is reported once.
func (c *checker) undeclaredPath(name string) string {
	var b []byte
	for _, s := range c.path {
		if s.name != "" {
			b = append(append(b, s.name...), '.')
		}
	}
	return string(append(b, name...))
}

// object returns false if the value is not an object.
func (c *checker) object(o *ObjectType, raw []byte) bool {
	next := 0
	var few [64]bool // most types have fewer fields
	seen := few[:]
	if len(o.Fields) > len(few) {
		seen = make([]bool, len(o.Fields))
	}
	ok := rawjson.Members(raw, func(name []byte, start, end int) bool {
		i := o.place(name, next)
		if i < 0 {
			c.unknown(rawjson.Name(name))
			return !c.stopped()
		}
		next = i + 1
		f := &o.Fields[i]
		seen[i] = true
		c.enter(f)
		c.field(f, raw[start:end])
		c.path = c.path[:len(c.path)-1]
		return !c.stopped()
	})
	if c.stopped() {
		return true
	}
	if ok {
		c.complete(o, seen)
	}
	return ok
}

func (c *checker) enter(f *Field) {
	name := f.Stored
	if c.schema {
		name = f.Name
	}
	c.path = append(c.path, step{name: name})
}

// complete looks for required fields that are not there. A missing list reads
// as empty.
func (c *checker) complete(o *ObjectType, seen []bool) {
	for i := range o.Fields {
		f := &o.Fields[i]
		if f.NonNull && f.Default == nil && !f.List && !seen[i] && !c.stopped() {
			c.enter(f)
			c.missing(f.TypeName(true), "nothing")
			c.path = c.path[:len(c.path)-1]
		}
	}
}

func (c *checker) missing(expected, found string) {
	c.mismatches = append(c.mismatches, &MismatchError{Path: c.pathString(), Expected: expected, Found: found, Missing: true})
}

func (c *checker) unknown(name string) {
	path := c.undeclaredPath(name)
	if !c.told[path] {
		if c.told == nil {
			c.told = make(map[string]bool)
		}
		c.told[path], c.undeclared = true, append(c.undeclared, path)
	}
}

// field checks the value of a field.
func (c *checker) field(f *Field, raw []byte) {
	if rawjson.Erased(raw) {
		return
	}
	if rawjson.IsNull(raw) {
		if f.NonNull && f.Default == nil {
			c.missing(f.TypeName(true), "null")
		}
		return
	}
	if !f.List {
		c.value(f, raw)
		return
	}
	i := 0
	c.path = append(c.path, step{})
	ok := rawjson.Elements(raw, func(start, end int) bool {
		c.path[len(c.path)-1].index = i
		i++
		switch null := rawjson.IsNull(raw[start:end]); {
		case !null:
			c.value(f, raw[start:end])
		case f.ElemNonNull || f.Kind == KindRef:
			c.missing(f.expected(), "null")
		}
		return !c.stopped()
	})
	c.path = c.path[:len(c.path)-1]
	if !ok && !c.stopped() {
		c.wrong(f.TypeName(false), raw)
	}
}

// value checks one value that is not null, or one element of a list.
func (c *checker) value(f *Field, raw []byte) {
	if f.Kind == KindObject {
		if !c.object(f.Object, raw) {
			c.wrong(f.expected(), raw)
		}
		return
	}
	if _, ok := RawScalar(f, raw); !ok {
		c.wrong(f.expected(), raw)
	} else if c.exact && !f.accepted(raw) {
		c.wrong(f.expected(), raw)
		c.mismatches[len(c.mismatches)-1].Readable = true
	}
}

func (c *checker) wrong(expected string, raw []byte) {
	c.mismatches = append(c.mismatches, &MismatchError{Path: c.pathString(), Expected: expected, Found: Sample(nonEmpty(raw))})
}

// accepted reports whether a value that can be read is one that is accepted
// now, too. Moments may be finer than they are read.
func (f *Field) accepted(raw []byte) bool {
	switch f.Kind {
	case KindDateTime:
		s, _ := rawjson.Unquote(raw)
		_, err := literal.CutDateTime(s)
		return err == nil
	case KindDate:
		s, _ := rawjson.Unquote(raw)
		return !strings.HasPrefix(s, "0000")
	case KindJSON:
		return outOfRange(raw) == nil
	default:
		return true
	}
}

// expected describes one value of a field.
func (f *Field) expected() string {
	switch f.Kind {
	case KindEnum:
		return fmt.Sprintf("one of %v", f.Enum)
	case KindDate:
		return `Date (like "2006-01-02")`
	case KindDateTime:
		return `DateTime (like "2006-01-02T15:04:05Z")`
	case KindJSON:
		return "JSON (with numbers up to 1.8e308)"
	case KindRef:
		return "a string (the key of a " + f.Ref + ")"
	default:
		return f.ElemName()
	}
}
