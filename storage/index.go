package storage

import "github.com/asof/asof/storage/rawjson"

// span is a part of a stored object; 0,0 where the field is missing.
type span struct{ start, end uint32 }

// at returns the value that a span marks; nil where there is none.
func (s span) at(raw []byte) []byte {
	if s.end == 0 {
		return nil
	}
	return raw[s.start:s.end:s.end]
}

// noted is what is kept beside a version that the engine returns more than once:
// where the members of its data lie.
type noted struct {
	typ   *ObjectType
	data  *byte // the first of the data that the spans are about
	spans []span
}

// indexNoted finds the document's declared members: once for all who read the
// version, where the engine keeps it.
func (d *Document) indexNoted() []span {
	if d.v.Notes == nil || len(d.raw) == 0 {
		return indexMembers(d.typ, d.raw)
	}
	if n, ok := d.v.Notes.Get().(*noted); ok && n.typ == d.typ && n.data == &d.raw[0] {
		return n.spans
	}
	spans := indexMembers(d.typ, d.raw)
	d.v.Notes.Keep(&noted{d.typ, &d.raw[0], spans})
	return spans
}

// indexTogether indexes documents of one type that were read together and are
// about to be looked at, some of which may be nil: those whose engine keeps none
// of them in one allocation. Nobody else has the documents yet.
func indexTogether(t *Type, docs ...*Document) {
	var spans []span
	fields := len(t.object.Fields)
	for i, d := range docs {
		switch {
		case d == nil:
		case d.v.Notes != nil:
			d.spans = d.indexNoted()
		default:
			if spans == nil {
				spans = make([]span, (len(docs)-i)*fields)
			}
			d.spans, spans = spans[:fields:fields], spans[fields:]
			indexInto(d.spans, t.object, d.raw)
		}
	}
}

// indexMembers finds the declared members of an object.
func indexMembers(t *ObjectType, raw []byte) []span {
	spans := make([]span, len(t.Fields))
	indexInto(spans, t, raw)
	return spans
}

// indexInto fills an index, which is all zero, with as many places as the type
// has fields.
func indexInto(spans []span, t *ObjectType, raw []byte) {
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
		spans[i] = span{uint32(start), uint32(end)}
		next = i + 1
		return true
	})
}
