package storage

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/asof/asof/storage/rawjson"
)

// Validate checks a document in normal form against the type, for versions that
// were recorded elsewhere. It returns the paths of the members that the type
// does not declare (stored names, with dots; those in lists without an index),
// and, where reading a value would be an error, a *MisfitError.
func (t *Type) Validate(data []byte) (undeclared []string, err error) {
	if err := t.prepare(); err != nil {
		return nil, err
	}
	c := checker{required: true}
	if !c.object(t.object, data) && c.err == nil {
		return nil, fmt.Errorf("a document is a JSON object, not %s", sample(nonEmpty(data)))
	}
	return c.undeclared, c.err
}

// MisfitError says that a value in a document is not what its type declares.
type MisfitError struct {
	Path     string // in stored names, with dots, and indexes in brackets
	Expected string
	Found    string
	// Missing says that a value is required and there is none, or a null.
	Missing bool
}

func (e *MisfitError) Error() string {
	return fmt.Sprintf("%s: expected %s, found %s", e.Path, e.Expected, e.Found)
}

func nonEmpty(b []byte) []byte {
	if len(b) == 0 {
		return []byte("null")
	}
	return b
}

// checker walks a value and compares it with its declaration. The path is kept
// as a list of frames, and written out only for an error.
type checker struct {
	strict     bool // nulls must be allowed, members declared
	required   bool // what cannot be read as null or empty must be there
	path       []step
	undeclared []string
	err        error
}

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

// object returns false if the value is not an object or c.err is set.
func (c *checker) object(o *ObjectType, raw []byte) bool {
	next := 0
	var few [64]bool // most types have fewer fields
	seen := few[:]
	if len(o.Fields) > len(few) {
		seen = make([]bool, len(o.Fields))
	}
	ok := rawjson.Members(raw, func(name []byte, start, end int) bool {
		i := next
		if i >= len(o.Fields) || o.Fields[i].Stored != string(name) {
			var ok bool
			if i, ok = o.byStored[string(name)]; !ok {
				if i, ok = o.byStored[rawjson.Name(name)]; !ok {
					c.unknown(rawjson.Name(name))
					return c.err == nil
				}
			}
		}
		next = i + 1
		f := &o.Fields[i]
		seen[i] = true
		c.path = append(c.path, step{name: f.Stored})
		c.field(f, raw[start:end])
		if c.err == nil {
			c.path = c.path[:len(c.path)-1]
		}
		return c.err == nil
	})
	if ok && c.required {
		c.complete(o, seen)
		return c.err == nil
	}
	return ok
}

// complete looks for required fields that are not there. A missing list reads
// as empty.
func (c *checker) complete(o *ObjectType, seen []bool) {
	for i := range o.Fields {
		f := &o.Fields[i]
		if f.NonNull && f.Default == nil && !f.List && !seen[i] {
			c.path = append(c.path, step{name: f.Stored})
			c.missing(f.typeName(true), "nothing")
			return
		}
	}
}

func (c *checker) missing(expected, found string) {
	c.err = &MisfitError{Path: c.pathString(), Expected: expected, Found: found, Missing: true}
}

func (c *checker) unknown(name string) {
	if c.strict {
		c.err = fmt.Errorf("there is no field %q", c.undeclaredPath(name))
		return
	}
	path := c.undeclaredPath(name)
	if !slices.Contains(c.undeclared, path) {
		c.undeclared = append(c.undeclared, path)
	}
}

// field checks the value of a field.
func (c *checker) field(f *Field, raw []byte) {
	if rawjson.IsNull(raw) {
		switch {
		case c.strict && f.NonNull:
			c.wrong(f.typeName(true), raw)
		case c.required && f.NonNull && f.Default == nil:
			c.missing(f.typeName(true), "null")
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
		case c.strict && f.ElemNonNull:
			c.wrong(f.expected(), raw[start:end])
		case c.required && (f.ElemNonNull || f.Kind == KindRef):
			c.missing(f.expected(), "null")
		}
		return c.err == nil
	})
	if c.err == nil {
		c.path = c.path[:len(c.path)-1]
		if !ok {
			c.wrong(f.typeName(false), raw)
		}
	}
}

// value checks one value that is not null, or one element of a list.
func (c *checker) value(f *Field, raw []byte) {
	if f.Kind == KindObject {
		if !c.object(f.Object, raw) && c.err == nil {
			c.wrong(f.expected(), raw)
		}
		return
	}
	if _, ok := rawScalar(f, raw); !ok {
		c.wrong(f.expected(), raw)
	}
}

func (c *checker) wrong(expected string, raw []byte) {
	c.err = &MisfitError{Path: c.pathString(), Expected: expected, Found: sample(nonEmpty(raw))}
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
	case KindRef:
		return "a string (the key of a " + f.Ref + ")"
	default:
		return f.elemName()
	}
}
