package sqlitestore

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// paths is a set of member paths, as a tree. One scan of a document finds the values
// at all of them, for a filter, an order or the indexes, and stops when all are found.
type paths struct {
	slot    int // of the value at this node; -1: none
	members []member
}

type member struct {
	name []byte // in normal form, without the quotes
	paths
}

func newPaths() *paths { return &paths{slot: -1} }

// add adds a path with a slot for its value, and returns the slot: the one that the
// path has already, or the given one.
func (p *paths) add(path []string, slot int) int {
	if len(path) == 0 {
		if p.slot < 0 {
			p.slot = slot
		}
		return p.slot
	}
	quoted := rawjson.AppendString(nil, path[0])
	name := quoted[1 : len(quoted)-1]
	for i := range p.members {
		if bytes.Equal(p.members[i].name, name) {
			return p.members[i].add(path[1:], slot)
		}
	}
	p.members = append(p.members, member{name: name, paths: paths{slot: -1}})
	return p.members[len(p.members)-1].add(path[1:], slot)
}

// find stores the values at the paths in slots, which the caller has cleared.
// A value is a slice of data; a missing one stays nil. Of bytes that are not JSON it
// finds what comes before the damage.
func (p *paths) find(data []byte, slots [][]byte) {
	if p.slot >= 0 {
		slots[p.slot] = data
	}
	missing := len(p.members)
	if missing == 0 {
		return
	}
	rawjson.Members(data, func(name []byte, start, end int) bool {
		for m := range p.members {
			if bytes.Equal(p.members[m].name, name) {
				p.members[m].find(data[start:end], slots)
				missing--
				break
			}
		}
		return missing > 0
	})
}

// Values are encoded so that bytes.Compare orders them in the order of their kind.
// Indexes, filters and sorts use the same encoding, so they cannot disagree.
// A value starts with a tag: null sorts first.
const (
	tagNull  = 0x00
	tagValue = 0x01
)

var (
	nullValue = []byte{tagNull}
	// lowValue and highValue are just outside of all values that are not null.
	lowValue  = []byte{tagValue}
	highValue = []byte{tagValue + 1}
)

// appendStored encodes a stored JSON value (nil: missing). A value that is not of the
// kind is null.
func appendStored(dst []byte, raw []byte, kind driver.Kind) []byte {
	if len(raw) == 0 {
		return append(dst, tagNull)
	}
	start := len(dst)
	dst = append(dst, tagValue)
	ok := false
	switch kind {
	case driver.KindString:
		if raw[0] == '"' {
			dst, ok = append(dst, unquoted(raw)...), true
		}
	case driver.KindInt:
		if isNumber(raw) {
			n, err := strconv.ParseInt(rawjson.View(raw), 10, 64)
			if ok = err == nil; ok {
				dst = appendInt(dst, n)
			}
		}
	case driver.KindFloat:
		if isNumber(raw) {
			f, err := strconv.ParseFloat(rawjson.View(raw), 64)
			if ok = err == nil; ok {
				dst = appendFloat(dst, f)
			}
		}
	case driver.KindBool:
		switch string(raw) {
		case "true":
			dst, ok = append(dst, 1), true
		case "false":
			dst, ok = append(dst, 0), true
		}
	case driver.KindInstant:
		if raw[0] == '"' {
			t, err := time.Parse(time.RFC3339, unquoted(raw))
			if ok = err == nil; ok {
				dst = appendInt(dst, int64(driver.InstantOf(t)))
			}
		}
	case driver.KindDate:
		if raw[0] == '"' {
			text := unquoted(raw)
			if ok = literal.IsDate(text); ok {
				dst = append(dst, text...)
			}
		}
	case driver.KindDecimal:
		text := ""
		if raw[0] == '"' {
			text = unquoted(raw)
		} else if isNumber(raw) {
			text = rawjson.View(raw)
		}
		dst, ok = appendDecimal(dst, text)
	case driver.KindObject: // not compared
	}
	if !ok {
		return append(dst[:start], tagNull)
	}
	return dst
}

// encodeValue encodes the value of a condition, a position or an index bound, which is
// of the kind; nil is null.
func encodeValue(value driver.Value, kind driver.Kind) []byte {
	dst := []byte{tagValue}
	switch v := value.(type) {
	case string:
		if kind == driver.KindDecimal {
			dst, _ = appendDecimal(dst, v)
			return dst
		}
		return append(dst, v...)
	case int64:
		return appendInt(dst, v)
	case float64:
		return appendFloat(dst, v)
	case bool:
		if v {
			return append(dst, 1)
		}
		return append(dst, 0)
	case driver.Instant:
		return appendInt(dst, int64(v))
	default:
		return []byte{tagNull}
	}
}

// appendInt flips the sign bit, so that negative numbers come first.
func appendInt(dst []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(n)^1<<63)
}

// appendFloat flips the sign bit of positive numbers and all bits of negative
// ones; IEEE 754 numbers then order as unsigned integers. Both zeros are one.
func appendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		f = 0
	}
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

const (
	decimalNegative = 0x01
	decimalZero     = 0x02
	decimalPositive = 0x03
)

// appendDecimal encodes a decimal number exactly: sign, the exponent of its
// first digit, and its digits without trailing zeros. For negative numbers the
// exponent and the digits are inverted and closed by a byte that sorts after
// every digit, so that the longer of two numbers with a common start is less.
func appendDecimal(dst []byte, text string) (_ []byte, ok bool) {
	number, ok := literal.ParseDecimal(text)
	switch {
	case !ok:
		return dst, false
	case len(number.Digits) == 0:
		return append(dst, decimalZero), true
	case !number.Negative:
		dst = append(dst, decimalPositive)
		dst = appendInt(dst, int64(number.Exponent))
		return append(dst, number.Digits...), true
	}
	dst = append(dst, decimalNegative)
	dst = appendInt(dst, -int64(number.Exponent))
	for _, digit := range number.Digits {
		dst = append(dst, 0xff-digit)
	}
	return append(dst, 0xff), true
}

// isNumber reports whether a JSON value is a number, by its first byte.
func isNumber(raw []byte) bool {
	return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'
}

// unquoted decodes a JSON string; the result may share memory with it.
func unquoted(raw []byte) string {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return rawjson.View(inner)
	}
	return gjson.ParseBytes(raw).Str
}

// successor is the least byte string after b.
func successor(b []byte) []byte {
	return append(bytes.Clone(b), 0)
}

// prefixEnd is the least byte string after all that start with b.
func prefixEnd(b []byte) []byte {
	end := bytes.Clone(b)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return highValue
}

// valueBuffer is memory for the indexed values of a document, reused for the next.
type valueBuffer struct {
	all   [][][]byte
	list  [][]byte
	slots [][]byte // raw values
	text  []byte   // encoded values
}

// values returns the encoded values of a document for each index: one for an index
// on a single value, and for an index on a list one for each distinct element, in
// ascending order. Without a document (nil) there are none.
func (c *collection) values(data []byte) [][][]byte {
	return c.valuesIn(new(valueBuffer), data)
}

// valuesIn is values in memory that the next call overwrites.
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
		rawjson.Elements(raw, func(start, end int) bool {
			add(raw[start:end])
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

// encodeNames returns the stored form of a list of member names: a JSON array,
// or the empty string for none.
func encodeNames(names []string) string {
	b := make([]byte, 0, 128)
	for i, name := range names {
		separator := byte(',')
		if i == 0 {
			separator = '['
		}
		b = rawjson.AppendString(append(b, separator), name)
	}
	if len(names) > 0 {
		b = append(b, ']')
	}
	return string(b)
}

func decodeNames(b []byte) ([]string, error) {
	var names []string
	if !rawjson.Elements(b, func(start, end int) bool {
		name, ok := rawjson.Unquote(b[start:end])
		names = append(names, name)
		return ok
	}) {
		return nil, internalf("stored list of changed names %.100q", b)
	}
	return names, nil
}
