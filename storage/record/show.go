package record

import (
	"iter"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/rawjson"
)

// Visible returns a field's stored value as users see it: nested objects in the
// names of the GraphQL schema, without what it does not declare. Nil stays nil.
func (f *Field) Visible(raw []byte) []byte {
	if f.Kind != KindObject || len(raw) == 0 {
		return raw // what was erased stays told apart until it is shown
	}
	return f.appendVisible(make([]byte, 0, len(raw)), raw)
}

func (f *Field) appendVisible(dst, raw []byte) []byte {
	switch {
	case f.Kind != KindObject, rawjson.Erased(raw):
		return append(dst, raw...)
	case !f.List || len(raw) == 0 || raw[0] != '[':
		return f.Object.appendVisible(dst, raw)
	}
	dst = append(dst, '[')
	first := true
	rawjson.Elements(raw, func(start, end int) bool {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = f.Object.appendVisible(dst, raw[start:end])
		return true
	})
	return append(dst, ']')
}

// Visible returns a stored object as users see it; what is not an object is
// returned as it is.
func (o *ObjectType) Visible(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	shown, _ := rawjson.HideErased(o.appendVisible(make([]byte, 0, len(raw)), raw))
	return shown
}

func (o *ObjectType) appendVisible(dst, raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return append(dst, raw...)
	}
	dst = append(dst, '{')
	first := true
	rawjson.Members(raw, func(name []byte, start, end int) bool {
		i, ok := o.byStored[string(name)]
		if !ok {
			if i, ok = o.byStored[rawjson.Name(name)]; !ok {
				return true
			}
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		f := &o.Fields[i]
		dst = append(rawjson.AppendString(dst, f.Name), ':')
		dst = f.appendVisible(dst, raw[start:end])
		return true
	})
	return append(dst, '}')
}

// Change is a visible change of a field.
type Change struct {
	diff.Change
	Field *Field
}

// Changes yields the visible changes between two states of an object, in the order of
// the schema, as far as they are wanted. Nil is a state without fields.
func (o *ObjectType) Changes(old, now []byte) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		oldAt, nowAt := Index(o, old), Index(o, now)
		for i := range o.Fields {
			f := &o.Fields[i]
			a, b := oldAt[i].At(old), nowAt[i].At(now)
			if string(a) == string(b) && (a == nil) == (b == nil) {
				continue
			}
			for c := range diff.Values(diff.Join("", f.Name), f.Visible(a), f.Visible(b)) {
				if !yield(Change{c, f}) {
					return
				}
			}
		}
	}
}
