package sqlitestore

import (
	"bytes"
	"slices"
)

// valueBuffer is memory for the indexed values of one document after the other.
type valueBuffer struct {
	all   [][][]byte
	list  [][]byte
	slots [][]byte // raw values
	text  []byte   // encoded values
}

// values returns the encoded values that the indexes hold of a document: one
// for an index on a single value, one for each distinct element for one on a
// list, in ascending order. No document (nil) has none.
func (c *collection) values(data []byte) [][][]byte {
	return c.valuesIn(new(valueBuffer), data)
}

// valuesIn is values in memory that is written over by the next call.
func (c *collection) valuesIn(b *valueBuffer, data []byte) [][][]byte {
	b.all = slices.Grow(b.all[:0], len(c.indexes))[:len(c.indexes)]
	clear(b.all)
	if data == nil || len(c.indexes) == 0 {
		return b.all
	}
	b.slots = slices.Grow(b.slots[:0], c.slots)[:c.slots]
	clear(b.slots)
	b.list, b.text = b.list[:0], b.text[:0]
	c.paths.find(data, b.slots)
	for i, ix := range c.indexes {
		raw, first := b.slots[ix.slot], len(b.list)
		add := func(stored []byte) {
			start := len(b.text)
			b.text = appendStored(b.text, stored, ix.decl.Kind)
			b.list = append(b.list, b.text[start:len(b.text):len(b.text)])
		}
		if !ix.decl.List {
			add(raw)
			b.all[i] = b.list[first:]
			continue
		}
		elements(raw, func(element []byte) bool {
			add(element)
			if last := len(b.list) - 1; b.list[last][0] == tagNull {
				b.list = b.list[:last]
			}
			return true
		})
		all := b.list[first:]
		slices.SortFunc(all, bytes.Compare)
		b.all[i] = slices.CompactFunc(all, bytes.Equal)
	}
	return b.all
}
