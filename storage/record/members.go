package record

import (
	"github.com/asof/asof/storage/rawjson"
)

// Span is a part of a stored object; 0,0 where the field is missing.
type Span struct{ start, end uint32 }

// At returns the value that a span marks; nil where there is none.
func (s Span) At(raw []byte) []byte {
	if s.end == 0 {
		return nil
	}
	return raw[s.start:s.end:s.end]
}

// Index finds the declared members of an object.
func Index(t *ObjectType, raw []byte) []Span {
	spans := make([]Span, len(t.Fields))
	IndexInto(spans, t, raw)
	return spans
}

// IndexInto fills an index, which is all zero, with as many places as the type
// has fields.
func IndexInto(spans []Span, t *ObjectType, raw []byte) {
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
		spans[i] = Span{uint32(start), uint32(end)}
		next = i + 1
		return true
	})
}
