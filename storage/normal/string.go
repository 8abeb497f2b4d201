package normal

import (
	"unicode/utf16"
	"unicode/utf8"

	"github.com/asof/asof/storage/rawjson"
)

// plain marks the ASCII characters that a string may hold as they are.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// IsPlain reports whether a text in quotes is a string of JSON that stands for
// itself: valid UTF-8 without quotes, backslashes and control characters.
func IsPlain(text []byte) bool {
	ascii := true
	for _, c := range text {
		if c >= utf8.RuneSelf {
			ascii = false
		} else if !plain[c] {
			return false
		}
	}
	return ascii || utf8.Valid(text)
}

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
