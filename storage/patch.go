package storage

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// patched applies a patch to a stored document, as RFC 7396 does but for one
// difference: lists and JSON values are replaced as a whole. An absent field is
// untouched, null removes the member or sets its default, nested objects are
// merged. Members keep their places, new ones come last, and what the type does
// not declare stays. What would read as it does now is not written: no read would
// show the difference.
// A nil document stands for one that is made now; then every non-null field
// without a default must be given, and fields that are not given, or null, get
// their defaults. They are stored, so that another default later changes
// nothing that was written before. The same goes for new nested objects.
func (s *Store) patched(t *Type, doc []byte, patch map[string]any, path string) ([]byte, error) {
	out, err := patchObject(t.object, doc, patch, path)
	if err != nil {
		return nil, err
	}
	if why := s.tooLarge(out); why != "" {
		return nil, badInput("%s: %s", path, why)
	}
	if out, err = normal.Object(out); err != nil { // deeper than a document may be
		return nil, badInput("%s: %v", path, err)
	}
	return out, nil
}

// tooLarge says why a document cannot be written; "" where it can.
func (s *Store) tooLarge(doc []byte) string {
	if len(doc) > s.limits.DocumentBytes {
		return fmt.Sprintf("the document would have %d bytes; at most %d are allowed (--max-document of asof serve)", len(doc), s.limits.DocumentBytes)
	}
	if len(doc) < 2*diff.MaxElements {
		return ""
	}
	if n := listElements(doc); n > diff.MaxElements {
		return fmt.Sprintf("the lists would have %d elements together; at most %d are allowed", n, diff.MaxElements)
	}
	return ""
}

// Excess says in which way a version that was recorded elsewhere is larger than one that can
// be written here; "" where it is not.
func (s *Store) Excess(v *driver.Version) string {
	for _, text := range [...]struct {
		what, is string
		most     int
	}{{"author", v.Author, MaxAuthor}, {"message", v.Message, MaxMessage}, {"change group", v.Group, maxGroup}} {
		if len(text.is) > text.most {
			return fmt.Sprintf("the %s has %d bytes; at most %d are allowed", text.what, len(text.is), text.most)
		}
	}
	return s.tooLarge(v.Data)
}

// The longest texts of a version, in bytes.
const (
	MaxAuthor  = 200
	MaxMessage = 16 << 10
	maxGroup   = 1 << 10 // that of an approval names the draft and the approver
)

// listElements returns the number of elements of all lists in a value, of which an empty one
// counts as one.
func listElements(value []byte) (n int) {
	var lists []bool // which of the lists and objects around a place are lists
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			i = rawjson.End(value, i) - 1
		case '[', '{':
			lists = append(lists, value[i] == '[')
			if value[i] == '[' {
				n++
			}
		case ',':
			if lists[len(lists)-1] {
				n++
			}
		case ']', '}':
			lists = lists[:len(lists)-1]
		}
	}
	return n
}

func patchObject(o *ObjectType, doc []byte, patch map[string]any, path string) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		if o.field(name) == nil {
			return nil, badInput("%s: %s has no field %s", path, o.Name, quoteShort(name))
		}
	}
	at := indexMembers(o, doc)
	set := make([]bool, len(o.Fields))
	values := make([][]byte, len(o.Fields)) // nil: remove
	for i := range o.Fields {
		f := &o.Fields[i]
		here := path + "." + f.Name
		v, given := patch[f.Name]
		if !given && doc == nil && f.NonNull && f.Default == nil && !f.List {
			return nil, badInput("%s: the field is required: it is declared %s", here, f.typeName(true))
		}
		if doc == nil && v == nil && f.Default != nil {
			set[i], values[i] = true, f.Default
			continue
		}
		if !given {
			continue
		}
		if v == nil {
			if f.NonNull && f.Default == nil {
				return nil, badInput("%s: null cannot be stored: the field is declared %s", here, f.typeName(true))
			}
			// What is null already stays as it is, and what has a default is that.
			values[i] = f.Default
			set[i] = (f.Default != nil || !rawjson.IsNull(at[i].at(doc))) && !(doc != nil && f.sameEffect(at[i].at(doc), f.Default))
			continue
		}
		var err error
		if values[i], err = f.patchValue(at[i].at(doc), v, here); err != nil {
			return nil, err
		}
		set[i] = doc == nil || !f.sameEffect(at[i].at(doc), values[i])
	}
	return splice(o, doc, set, values), nil
}

// patchValue returns the stored form of a field's new value.
func (f *Field) patchValue(old []byte, v any, path string) ([]byte, error) {
	if raw, ok := v.(stored); ok {
		return raw, nil
	}
	switch {
	case f.List:
		return f.encodeList(v, path)
	case f.Kind == KindObject:
		m, ok := v.(map[string]any)
		if !ok {
			return nil, wrongInput(path, v, "an object")
		}
		if len(old) == 0 || old[0] != '{' {
			old = nil
		}
		return patchObject(f.Object, old, m, path)
	}
	return f.encode(path, v)
}

func (f *Field) encodeList(v any, path string) ([]byte, error) {
	out := []byte{'['}
	for i, elem := range asList(v) {
		here := fmt.Sprintf("%s[%d]", path, i)
		if i > 0 {
			out = append(out, ',')
		}
		var raw []byte
		var err error
		switch {
		case elem == nil && (f.ElemNonNull || f.Kind == KindRef):
			err = badInput("%s: null cannot be an element: the field is declared %s", here, f.typeName(true))
		case elem == nil:
			raw = []byte("null")
		case f.Kind == KindObject:
			m, ok := elem.(map[string]any)
			if !ok {
				return nil, wrongInput(here, elem, "an object")
			}
			raw, err = patchObject(f.Object, nil, m, here)
		default:
			raw, err = f.encode(here, elem)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, raw...)
	}
	return append(out, ']'), nil
}

// splice writes an object with some of its fields set or removed.
func splice(o *ObjectType, doc []byte, set []bool, values [][]byte) []byte {
	size := len(doc) + 2
	for i, v := range values {
		size += len(v) + len(o.Fields[i].Stored) + 4
	}
	out := append(make([]byte, 0, size), '{')
	member := func(name string, raw []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(rawjson.AppendString(out, name), ':')
		out = append(out, raw...)
	}
	written := make([]bool, len(o.Fields))
	rawjson.Members(doc, func(name []byte, start, end int) bool {
		text := rawjson.Name(name)
		i, declared := o.byStored[text]
		switch {
		case !declared || !set[i]:
			member(text, doc[start:end])
		case values[i] != nil:
			member(text, values[i])
		}
		if declared {
			written[i] = true
		}
		return true
	})
	for i := range o.Fields {
		if set[i] && values[i] != nil && !written[i] {
			member(o.Fields[i].Stored, values[i])
		}
	}
	return append(out, '}')
}

// patchPaths lists the JSON Pointers of the values that a patch sets, sorted.
func patchPaths(o *ObjectType, patch map[string]any, path string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		f := o.field(name)
		if f == nil {
			continue
		}
		here := diff.Join(path, name)
		if nested, ok := patch[name].(map[string]any); ok && f.Kind == KindObject && !f.List && len(nested) > 0 {
			out = append(out, patchPaths(f.Object, nested, here)...)
			continue
		}
		out = append(out, here)
	}
	return out
}

// valueAt returns the value at a path of member names; nil where there is none.
func valueAt(raw []byte, names []string) []byte {
	for _, name := range names {
		var found []byte
		rawjson.Members(raw, func(n []byte, start, end int) bool {
			if rawjson.Is(n, name) {
				found = raw[start:end:end]
				return false
			}
			return true
		})
		if found == nil {
			return nil
		}
		raw = found
	}
	return raw
}

// sameEffect reports whether a field reads the same with either stored value; nil
// is a missing one. What cannot be read is like nothing else.
func (f *Field) sameEffect(a, b []byte) bool {
	if a != nil && bytes.Equal(a, b) {
		return true
	}
	x, ok := f.reads(a)
	if !ok {
		return false
	}
	y, ok := f.reads(b)
	return ok && normal.Equal(x, y)
}

// reads returns what a reader sees of a stored value, in one form for all the
// ways in which it can be stored: a missing list is empty, null and missing
// values are defaults, and members that the type does not declare are not there.
// It returns false for what cannot be read.
func (f *Field) reads(raw []byte) (value []byte, ok bool) {
	missing := raw == nil
	if rawjson.IsNull(raw) {
		raw = f.Default
	}
	switch {
	case raw == nil && f.List && missing:
		return []byte("[]"), true
	case raw == nil:
		return []byte("null"), true
	case !f.List:
		return f.readsOne(raw)
	}
	out := []byte{'['}
	ok = true
	isList := rawjson.Elements(raw, func(start, end int) bool {
		elem := raw[start:end]
		if !rawjson.IsNull(elem) {
			elem, ok = f.readsOne(elem)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, elem...)
		return ok
	})
	return append(out, ']'), ok && isList
}

// readsOne is reads for a value that is not null, or for an element of a list.
func (f *Field) readsOne(raw []byte) (value []byte, ok bool) {
	if f.Kind != KindObject {
		return rawScalar(f, raw)
	}
	if raw[0] != '{' {
		return nil, false
	}
	at := indexMembers(f.Object, raw)
	out := []byte{'{'}
	for i := range f.Object.Fields {
		inner := &f.Object.Fields[i]
		value, ok := inner.reads(at[i].at(raw))
		if !ok {
			return nil, false
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(rawjson.AppendString(out, inner.Name), ':'), value...)
	}
	return append(out, '}'), true
}
