package storage

import (
	"bytes"

	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// readsSame reports whether a field reads the same with either stored value; nil
// is a missing one. What cannot be read is like nothing else.
func (f *Field) readsSame(a, b []byte) bool {
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
