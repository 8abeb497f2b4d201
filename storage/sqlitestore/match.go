package sqlitestore

import (
	"bytes"
	"context"
	"strings"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
	"github.com/asof/asof/storage/rawjson"
)

// A filter is compiled once for each query into conditions that work on the
// stored bytes. Comparisons compare encoded values, see values.go.

// scope holds the operands of conditions: the values found in a document, or in
// one element of a list, and the version's own values.
type scope struct {
	slots [][]byte
	meta  *meta
	buf   []byte
	texts []decoded // two for each slot: unchanged, and in lower case
	looks *looks
}

// decoded is a text that is decoded for the first condition and kept for the others.
type decoded struct {
	text []byte
	done bool
}

// enter makes a document, or an element of a list, the scope of conditions.
func (s *scope) enter(data []byte, p *paths) {
	clear(s.slots)
	for i := range s.texts {
		s.texts[i].done = false
	}
	p.find(data, s.slots)
}

// looks counts the bytes that a query compares, to check its context in time: a
// document may have a megabyte, and a filter hundreds of conditions on it.
type looks struct {
	ctx   context.Context
	bytes int
	err   error // the query's context has ended, and results of match are invalid
}

// bytesPerLook is after how many compared bytes the context is checked.
const bytesPerLook = 1 << 20

// ended counts a comparison of n bytes, and reports whether the query's context has ended.
func (l *looks) ended(bytes int) bool {
	const comparison = 16 // the fixed cost of one, in bytes
	if l.bytes += bytes + comparison; l.bytes >= bytesPerLook && l.err == nil {
		l.bytes = 0
		l.err = l.ctx.Err()
	}
	return l.err != nil
}

// meta holds the values that a version carries, if fields ask for some.
type meta struct {
	key                    []byte
	number, at, op         int64
	author, message, group []byte
}

type condition interface{ match(s *scope) bool }

// matcher is a compiled filter with the paths that it needs.
type matcher struct {
	cond  condition // nil: everything matches
	paths *paths
	slots int
	meta  bool // some field is a value that versions carry
}

func newMatcher() *matcher { return &matcher{paths: newPaths()} }

// slot returns the slot of a path's value.
func (m *matcher) slot(path []string) int {
	slot := m.paths.add(path, m.slots)
	if slot == m.slots {
		m.slots++
	}
	return slot
}

// operand is a field, ready to be read.
type operand struct {
	meta driver.Meta
	slot int
	kind driver.Kind
}

// operand compiles a field.
func (m *matcher) operand(f driver.Field) operand {
	if f.Meta == driver.MetaNone {
		return operand{slot: m.slot(f.Path), kind: f.Kind}
	}
	m.meta = true
	return operand{meta: f.Meta, kind: check.MetaKind(f.Meta)}
}

// raw returns the JSON of a document's field; nil where it is missing.
func (o operand) raw(s *scope) []byte { return s.slots[o.slot] }

// append encodes the field's value.
func (o operand) append(dst []byte, s *scope) []byte {
	if o.meta == driver.MetaNone {
		return appendStored(dst, o.raw(s), o.kind)
	}
	dst = append(dst, tagValue)
	switch o.meta {
	case driver.MetaKey:
		return append(dst, s.meta.key...)
	case driver.MetaAuthor:
		return append(dst, s.meta.author...)
	case driver.MetaMessage:
		return append(dst, s.meta.message...)
	case driver.MetaGroup:
		return append(dst, s.meta.group...)
	case driver.MetaNumber:
		return appendInt(dst, s.meta.number)
	case driver.MetaRecordedAt:
		return appendInt(dst, s.meta.at)
	case driver.MetaOp:
		return appendInt(dst, s.meta.op)
	case driver.MetaNone:
	}
	return dst
}

// value encodes into the scope's buffer; nil for null.
func (o operand) value(s *scope) []byte {
	if s.looks.err != nil {
		return nil
	}
	if o.meta == driver.MetaNone && o.kind == driver.KindString && bytes.IndexByte(o.raw(s), '\\') >= 0 {
		text, ok := o.text(s, false) // which is decoded once for all conditions
		if !ok {
			return nil
		}
		s.buf = append(append(s.buf[:0], tagValue), text...)
		return s.buf
	}
	s.buf = o.append(s.buf[:0], s)
	if s.looks.ended(len(s.buf)) || s.buf[0] == tagNull {
		return nil
	}
	return s.buf
}

// text returns the value of a field of strings, in lower case if fold is set; false for
// null. It is valid until the next call for a value of the version.
func (o operand) text(s *scope, fold bool) (_ []byte, ok bool) {
	if o.meta != driver.MetaNone {
		v := o.value(s)
		if v == nil {
			return nil, false
		}
		if fold {
			return bytes.ToLower(v[1:]), true
		}
		return v[1:], true
	}
	raw := o.raw(s)
	if len(raw) == 0 || raw[0] != '"' || s.looks.ended(len(raw)) {
		return nil, false
	}
	inner := raw[1 : len(raw)-1]
	if !fold && bytes.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	if s.texts == nil {
		s.texts = make([]decoded, 2*len(s.slots))
	}
	d := &s.texts[2*o.slot]
	if fold {
		d = &s.texts[2*o.slot+1]
	}
	if !d.done {
		d.done = true
		if fold {
			d.text = append(d.text[:0], strings.ToLower(unquoted(raw))...)
		} else {
			d.text = append(d.text[:0], unquoted(raw)...)
		}
	}
	return d.text, true
}

type (
	always  bool
	allOf   []condition
	anyOf   []condition
	negated struct{ condition }
	compare struct {
		operand
		op    driver.CompareOp
		value []byte
	}
	oneOf struct {
		operand
		values map[string]bool
	}
	text struct {
		operand
		op    driver.TextOp
		value []byte
		fold  bool
	}
	present struct{ operand }
	element struct {
		operand
		inner *matcher
		scope *scope
	}
)

func (c always) match(*scope) bool { return bool(c) }

func (c allOf) match(s *scope) bool {
	for _, cond := range c {
		if !cond.match(s) {
			return false
		}
	}
	return true
}

func (c anyOf) match(s *scope) bool {
	for _, cond := range c {
		if cond.match(s) {
			return true
		}
	}
	return false
}

func (c negated) match(s *scope) bool { return !c.condition.match(s) }

func (c *compare) match(s *scope) bool {
	v := c.operand.value(s)
	if v == nil {
		return false
	}
	return check.Relates(bytes.Compare(v, c.value), c.op)
}

func (c *oneOf) match(s *scope) bool {
	v := c.operand.value(s)
	return v != nil && c.values[string(v)]
}

func (c *text) match(s *scope) bool {
	v, ok := c.operand.text(s, c.fold)
	return ok && check.Matches(v, c.value, c.op)
}

func (c present) match(s *scope) bool {
	raw := c.raw(s)
	switch c.kind {
	case 0:
		return len(raw) > 0 && raw[0] != 'n'
	case driver.KindObject:
		return len(raw) > 0 && raw[0] == '{'
	default:
		return c.value(s) != nil
	}
}

func (c *element) match(s *scope) bool {
	found := false
	c.scope.looks = s.looks
	list := c.raw(s)
	rawjson.Elements(list, func(start, end int) bool {
		e := list[start:end]
		if s.looks.ended(len(e)) {
			return false
		}
		c.scope.enter(e, c.inner.paths)
		found = c.inner.cond.match(c.scope)
		return !found
	})
	return found
}

// compile adds a filter to the matcher.
func (m *matcher) compile(f driver.Filter) condition {
	switch f := f.(type) {
	case driver.And:
		return allOf(m.compileAll(f))
	case driver.Or:
		return anyOf(m.compileAll(f))
	case driver.Not:
		return negated{m.compile(f.Filter)}
	case driver.Compare:
		return &compare{operand: m.operand(f.Field), op: f.Op, value: encodeValue(f.Value, f.Field.Kind)}
	case driver.In:
		if len(f.Values) == 1 {
			return m.compile(driver.Compare{Field: f.Field, Op: driver.Eq, Value: f.Values[0]})
		}
		values := make(map[string]bool, len(f.Values))
		for _, v := range f.Values {
			values[string(encodeValue(v, f.Field.Kind))] = true
		}
		return &oneOf{operand: m.operand(f.Field), values: values}
	case driver.Text:
		value := f.Value
		if f.Fold {
			value = strings.ToLower(value)
		}
		return &text{operand: m.operand(f.Field), op: f.Op, value: []byte(value), fold: f.Fold}
	case driver.Present:
		return present{m.operand(f.Field)}
	case driver.Any:
		inner := newMatcher()
		inner.cond = inner.compile(f.Filter)
		return &element{operand: m.operand(f.Field), inner: inner, scope: &scope{slots: make([][]byte, inner.slots)}}
	default: // none: any element of a list
		return always(true)
	}
}

func (m *matcher) compileAll(filters []driver.Filter) []condition {
	list := make([]condition, len(filters))
	for i, f := range filters {
		list[i] = m.compile(f)
	}
	return list
}
