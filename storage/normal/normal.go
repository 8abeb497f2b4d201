// Package normal defines the form in which documents are stored.
//
// A document in normal form is a JSON object that is compact, in valid UTF-8,
// without duplicate member names at any depth; strings are escaped only where
// they must be; a number that is an integer in the range of int64 is written
// as one, any other as the shortest text that reads back as the same float64
// (as ECMAScript and RFC 8785 do), if that has exactly the same value, and else
// with the digits that were given. Members keep the order in which they were
// written.
//
// Invariants:
//
//   - Object is idempotent: what it returns, it returns again.
//   - Values that are equal in every respect but member order are Equal, and
//     values that are not, are not.
//   - Work is linear in the size of the text, and so is memory; depth is bounded.
package normal

import (
	"fmt"
	"unicode/utf8"

	"github.com/asof/asof/storage/rawjson"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 500

// SyntaxError says why a text is not a document, and where.
type SyntaxError struct {
	Offset  int // in bytes
	Message string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Message) }

// usual is how many members there is room for without an allocation.
const usual = 32

// Object returns the normal form of a JSON object. Errors are *SyntaxError.
func Object(data []byte) ([]byte, error) {
	var s Scratch
	return s.Object(data)
}

// Scratch is memory that is used again for one document after the other. Its
// zero value is ready. It is not safe for concurrent use.
type Scratch struct{ names [][]byte }

// Object is as the function of that name; the result has memory of its own.
func (s *Scratch) Object(data []byte) ([]byte, error) {
	p := parser{in: data, out: make([]byte, 0, len(data)), names: s.room()}
	defer func() { s.names = p.names }()
	p.space()
	if p.i < len(data) && data[p.i] != '{' {
		return nil, &SyntaxError{p.i, "a document is a JSON object"}
	}
	return p.run()
}

func (s *Scratch) room() [][]byte {
	if s.names == nil {
		return make([][]byte, 0, usual)
	}
	return s.names[:0]
}

// Value returns the normal form of any JSON value. Errors are *SyntaxError.
func Value(data []byte) ([]byte, error) {
	var s Scratch
	p := parser{in: data, out: make([]byte, 0, len(data)), names: s.room()}
	return p.run()
}

type parser struct {
	in  []byte
	i   int
	out []byte
	err *SyntaxError
	// names are those of the objects that are being read, innermost last.
	names [][]byte
}

func (p *parser) run() ([]byte, error) {
	p.space()
	if p.value(0); p.err == nil {
		p.space()
		if p.i < len(p.in) {
			p.fail("text after the end of the value")
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.out, nil
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = &SyntaxError{p.i, fmt.Sprintf(format, args...)}
	}
}

func (p *parser) space() {
	for p.i < len(p.in) {
		switch p.in[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// unexpected describes what stands where something else should.
func (p *parser) unexpected(want string) {
	if p.i >= len(p.in) {
		p.fail("the text ends where %s should be", want)
		return
	}
	r, _ := utf8.DecodeRune(p.in[p.i:])
	p.fail("%q stands where %s should be", r, want)
}

func (p *parser) value(depth int) {
	if p.i >= len(p.in) {
		p.unexpected("a value")
		return
	}
	switch c := p.in[p.i]; {
	case c == '"':
		p.str()
	case c == '{':
		p.object(depth + 1)
	case c == '[':
		p.array(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		p.number()
	case c == 't':
		p.literal("true")
	case c == 'f':
		p.literal("false")
	case c == 'n':
		p.literal("null")
	default:
		p.unexpected("a value")
	}
}

func (p *parser) literal(word string) {
	if len(p.in)-p.i < len(word) || string(p.in[p.i:p.i+len(word)]) != word {
		p.unexpected("a value")
		return
	}
	p.i += len(word)
	p.out = append(p.out, word...)
}

func (p *parser) array(depth int) {
	if depth > MaxDepth {
		p.fail("nested more than %d deep", MaxDepth)
		return
	}
	p.i++
	p.out = append(p.out, '[')
	if p.space(); p.takes(']') {
		return
	}
	for p.err == nil {
		p.space()
		if p.value(depth); p.err != nil {
			return
		}
		if p.space(); p.takes(',') {
			continue
		}
		if p.takes(']') {
			return
		}
		p.unexpected("a comma or the end of the array")
	}
}

// takes copies the character c, if it is the next, and reports whether it was.
func (p *parser) takes(c byte) bool {
	if p.i >= len(p.in) || p.in[p.i] != c {
		return false
	}
	p.i++
	p.out = append(p.out, c)
	return true
}

func (p *parser) object(depth int) {
	if depth > MaxDepth {
		p.fail("nested more than %d deep", MaxDepth)
		return
	}
	outer := len(p.names)
	defer func() { p.names = p.names[:outer] }()
	set := nameSet{}
	p.i++
	p.out = append(p.out, '{')
	if p.space(); p.takes('}') {
		return
	}
	for p.err == nil {
		p.space()
		if p.i >= len(p.in) || p.in[p.i] != '"' {
			p.unexpected("a member name in quotes")
			return
		}
		at, start := p.i, len(p.out)
		if p.str(); p.err != nil {
			return
		}
		name := p.out[start+1 : len(p.out)-1]
		if !set.add(p.names[outer:], name) {
			p.i = at
			p.fail("the member %q is there twice", rawjson.Name(name))
			return
		}
		p.names = append(p.names, name)
		p.space()
		if !p.takes(':') {
			p.unexpected("a colon")
			return
		}
		p.space()
		if p.value(depth); p.err != nil {
			return
		}
		if p.space(); p.takes(',') {
			continue
		}
		if p.takes('}') {
			return
		}
		p.unexpected("a comma or the end of the object")
	}
}

// nameSet finds duplicates among the names of one object. Names in ascending
// order, and few names, need no map.
type nameSet struct {
	greatest []byte
	all      map[string]struct{}
}

// add returns false if the name is among those seen before.
func (s *nameSet) add(seen [][]byte, name []byte) bool {
	const few = 24
	if len(seen) == 0 || string(name) > string(s.greatest) {
		s.greatest = name
		if s.all != nil {
			s.all[string(name)] = struct{}{}
		}
		return true
	}
	if len(seen) <= few {
		for _, other := range seen {
			if string(other) == string(name) {
				return false
			}
		}
		return true
	}
	if s.all == nil {
		s.all = make(map[string]struct{}, 2*len(seen))
		for _, other := range seen {
			s.all[string(other)] = struct{}{}
		}
	}
	if _, double := s.all[string(name)]; double {
		return false
	}
	s.all[string(name)] = struct{}{}
	return true
}
