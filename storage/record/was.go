package record

import (
	"bytes"

	"github.com/asof/asof/storage/rawjson"
)

// Today returns an object in the form that is declared: itself, where it is in that.
func (o *ObjectType) Today(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	for _, i := range o.was {
		f := &o.Fields[i]
		for _, name := range f.Was.Members {
			was, to := rawjson.Find(raw, []string{name}), []string{f.Stored, name}
			if was == nil {
				continue
			}
			if !rawjson.IsNull(was) && rawjson.Find(raw, to) == nil {
				raw = rawjson.Set(raw, to, was)
			}
			raw = rawjson.Set(raw, []string{name}, nil)
		}
		was := rawjson.Find(raw, []string{f.Stored})
		if is := f.today(was); !bytes.Equal(is, was) {
			raw = rawjson.Set(raw, []string{f.Stored}, is)
		}
	}
	return raw
}

func (f *Field) today(raw []byte) []byte {
	switch {
	case rawjson.IsNull(raw), rawjson.Erased(raw):
		return raw
	case !f.List:
		return f.elementToday(raw)
	case raw[0] != '[' && f.Was.Single:
		return append(append([]byte{'['}, f.elementToday(raw)...), ']')
	}
	out := make([]byte, 0, len(raw))
	rawjson.Elements(raw, func(start, end int) bool {
		out = append(append(out, ','), f.elementToday(raw[start:end])...)
		return true
	})
	if len(out) == 0 {
		return raw
	}
	out[0] = '['
	return append(out, ']')
}

func (f *Field) elementToday(raw []byte) []byte {
	switch {
	case f.Kind == KindObject:
		return f.Object.Today(raw)
	case f.Was.Enum == nil:
	default:
		if was, ok := rawjson.Unquote(raw); ok && f.Was.Enum[was] != "" {
			return rawjson.AppendString(nil, f.Was.Enum[was])
		}
	}
	return raw
}
