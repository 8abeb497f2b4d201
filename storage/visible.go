package storage

import (
	"strings"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// visible returns a field's stored value as users see it: nested objects in the
// names of the GraphQL schema, without what it does not declare. Nil stays nil.
func (f *Field) visible(raw []byte) []byte {
	if f.Kind != KindObject || len(raw) == 0 {
		return raw
	}
	if !f.List || raw[0] != '[' {
		return f.Object.visible(raw)
	}
	out := []byte{'['}
	rawjson.Elements(raw, func(start, end int) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, f.Object.visible(raw[start:end])...)
		return true
	})
	return append(out, ']')
}

// visible returns a stored object as users see it; what is not an object is
// returned as it is.
func (o *ObjectType) visible(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	out := []byte{'{'}
	rawjson.Members(raw, func(name []byte, start, end int) bool {
		i, ok := o.byStored[string(name)]
		if !ok {
			if i, ok = o.byStored[rawjson.Name(name)]; !ok {
				return true
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		f := &o.Fields[i]
		out = append(rawjson.AppendString(out, f.Name), ':')
		out = append(out, f.visible(raw[start:end])...)
		return true
	})
	return append(out, '}')
}

// changesBetween lists the visible changes between two states of a document, in
// the order of the schema. Either may be nil, or a tombstone. The changes carry
// the version v.
func (s *Store) changesBetween(t *Type, before, after, v *driver.Version, seen driver.Instant) []*FieldChange {
	old, now := dataOf(before), dataOf(after)
	oldAt, nowAt := indexMembers(t.object, old), indexMembers(t.object, now)
	var out []*FieldChange
	var changes []diff.Change
	for i := range t.object.Fields {
		f := &t.object.Fields[i]
		a, b := oldAt[i].at(old), nowAt[i].at(now)
		if string(a) == string(b) && (a == nil) == (b == nil) {
			continue
		}
		changes = diff.Values(changes[:0], diff.Join("", f.Name), f.visible(a), f.visible(b))
		for _, c := range changes {
			out = append(out, &FieldChange{
				Path: c.Path, Field: f.Name, Op: changeOps[c.Op], OldValue: c.Old, NewValue: c.New,
				store: s, typ: t, v: v, seen: seen,
			})
		}
	}
	return out
}

var changeOps = [...]ChangeOp{diff.Add: ChangeAdd, diff.Replace: ChangeReplace, diff.Remove: ChangeRemove}

// dataOf returns a version's document; nil for none and for a tombstone.
func dataOf(v *driver.Version) []byte {
	if v == nil || v.Deleted {
		return nil
	}
	return v.Data
}

// storedNames turns GraphQL names of top-level fields into stored ones. Names
// that the type does not have are an error.
func (t *Type) storedNames(arg string, names []string) ([]string, error) {
	out := make([]string, 0, len(names))
	for _, name := range names {
		f := t.object.field(name)
		if f == nil {
			return nil, badInput("%s: %s has no field %s", arg, t.Name, quoteShort(name))
		}
		out = append(out, f.Stored)
	}
	return out, nil
}

// jsonPatch writes changes as a JSON Patch (RFC 6902). A document that does not
// exist is null: it becomes an empty object first, or null at last.
func jsonPatch(changes []*FieldChange, fromNothing, toNothing bool) []byte {
	out := []byte{'['}
	op := func(name, path string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, `{"op":"`...), name...), `","path":`...)
		out = rawjson.AppendString(out, path)
		if value != nil {
			out = append(append(out, `,"value":`...), value...)
		}
		out = append(out, '}')
	}
	if fromNothing && !toNothing {
		op("replace", "", []byte("{}"))
	}
	for _, c := range changes {
		op(strings.ToLower(string(c.Op)), c.Path, c.NewValue)
	}
	if toNothing && !fromNothing {
		op("replace", "", []byte("null"))
	}
	return append(out, ']')
}
