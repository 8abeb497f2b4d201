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
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/asof/asof/internal/scalar/literal"
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
	s := Scratch{out: make([]byte, 0, len(data))}
	return s.Object(data)
}

// Scratch is memory that is used again for one document after the other. Its
// zero value is ready. It is not safe for concurrent use.
type Scratch struct {
	out   []byte
	names [][]byte
}

// maxScratch is how many bytes are kept for the next document.
const maxScratch = 1 << 20

// Object is as the function of that name; the result is good until the next call.
func (s *Scratch) Object(data []byte) ([]byte, error) {
	p := parser{in: data, out: s.out[:0], names: s.room()}
	defer func() {
		if s.names = p.names; cap(p.out) <= maxScratch {
			s.out = p.out
		}
	}()
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

// number reads a number and appends its normal form.
func (p *parser) number() {
	n, integer, err := literal.Scan(p.in[p.i:])
	start := p.i
	switch p.i += n; {
	case errors.Is(err, literal.ErrZero):
		p.fail("%v", err)
		return
	case err != nil:
		p.unexpected("a digit")
		return
	}
	text := p.in[start:p.i]
	const safe = 18 // int64 holds all integers of 18 digits
	if integer && n <= safe && string(text) != "-0" {
		p.out = append(p.out, text...)
		return
	}
	p.out = appendNumber(p.out, text)
}

// appendNumber appends the normal form of a number.
func appendNumber(dst, text []byte) []byte {
	number, ok := literal.ParseNumber(string(text))
	if !ok {
		return append(dst, text...)
	}
	if n, ok := integer(number); ok {
		return strconv.AppendInt(dst, n, 10)
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(x, 0) {
		return append(dst, text...)
	}
	shortest := appendFloat(nil, x)
	if same, ok := literal.ParseNumber(string(shortest)); !ok || same.Compare(number) != 0 {
		return append(dst, text...)
	}
	return append(dst, shortest...)
}

// appendFloat formats as ECMAScript does (ECMA-262, Number::toString).
func appendFloat(dst []byte, x float64) []byte {
	if abs := math.Abs(x); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		dst = strconv.AppendFloat(dst, x, 'e', -1, 64)
		if n := len(dst); n >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
			dst = append(dst[:n-2], dst[n-1]) // e-09 is written e-9
		}
		return dst
	}
	return strconv.AppendFloat(dst, x, 'f', -1, 64)
}

// integer returns the number as an int64, if it is one.
func integer(d literal.Number) (int64, bool) {
	if len(d.Digits) == 0 {
		return 0, true
	}
	if d.Exponent < len(d.Digits) || d.Exponent > 19 {
		return 0, false
	}
	text := make([]byte, 0, 20)
	if d.Negative {
		text = append(text, '-')
	}
	text = append(text, d.Digits...)
	text = append(text, bytes.Repeat([]byte{'0'}, d.Exponent-len(d.Digits))...)
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// plain marks the ASCII characters that a string may hold as they are.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// str copies a string that needs no change, which nearly all do.
func (p *parser) str() {
	start := p.i
	ascii := true
	for i := p.i + 1; i < len(p.in); i++ {
		c := p.in[i]
		if plain[c] {
			continue
		}
		switch {
		case c == '"':
			p.i = i + 1
			if !ascii && !utf8.Valid(p.in[start:p.i]) {
				p.i = start
				p.fail("the string is not valid UTF-8")
				return
			}
			p.out = append(p.out, p.in[start:p.i]...)
			return
		case c == '\\':
			p.escaped(start)
			return
		case c < ' ':
			p.i = i
			p.fail("a control character stands in a string; write it as \\u%04x", c)
			return
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	p.i = len(p.in)
	p.unexpected("the end of a string")
}

// escaped decodes a string that has escapes and writes it again with those that
// it needs.
func (p *parser) escaped(start int) {
	var text []byte
	for i := start + 1; i < len(p.in); {
		c := p.in[i]
		switch {
		case c == '"':
			p.i = i + 1
			if !utf8.Valid(text) {
				p.i = start
				p.fail("the string is not valid UTF-8")
				return
			}
			p.out = rawjson.AppendString(p.out, string(text))
			return
		case c < ' ':
			p.i = i
			p.fail("a control character stands in a string; write it as \\u%04x", c)
			return
		case c != '\\':
			text = append(text, c)
			i++
			continue
		}
		n := 0
		if text, n = p.escape(text, i); p.err != nil {
			return
		}
		i += n
	}
	p.i = len(p.in)
	p.unexpected("the end of a string")
}

var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape appends what the escape at i stands for, and returns its length.
func (p *parser) escape(text []byte, i int) ([]byte, int) {
	p.i = i
	if i+1 >= len(p.in) {
		p.fail("the text ends inside a string")
		return text, 0
	}
	if c := simpleEscapes[p.in[i+1]]; c != 0 {
		return append(text, c), 2
	}
	r, ok := p.hex4(i)
	if !ok {
		p.fail("an escape in a string is not one that JSON has")
		return text, 0
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(text, r), 6
	}
	low, ok := p.hex4(i + 6)
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return utf8.AppendRune(text, pair), 12
	}
	p.fail("half of a surrogate pair stands alone in a string")
	return text, 0
}

// hex4 reads \uXXXX at i.
func (p *parser) hex4(i int) (rune, bool) {
	if i+6 > len(p.in) || p.in[i] != '\\' || p.in[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range p.in[i+2 : i+6] {
		r <<= 4
		switch {
		case c >= '0' && c <= '9':
			r |= rune(c - '0')
		case c >= 'a' && c <= 'f':
			r |= rune(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			r |= rune(c - 'A' + 10)
		default:
			return 0, false
		}
	}
	return r, true
}
