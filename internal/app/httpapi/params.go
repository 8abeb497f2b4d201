package httpapi

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
)

// readParams decodes a request's body that checkJSON has found to be one JSON
// object in valid UTF-8 without halves of surrogate pairs. What is not written
// in the usual way (members of other names, or in another case) is left to
// package encoding/json, whose result is the same where both read it. A member
// that is there twice is errRepeated.
func readParams(text []byte, params *graphql.RawParams) error {
	s := paramScanner{text: text}
	switch usual := s.params(params); {
	case s.again:
		return errRepeated
	case usual:
		return nil
	case len(repeated(text, true)) > 0:
		return errRepeated
	}
	*params = graphql.RawParams{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(params)
}

// paramScanner reads JSON that is known to be valid.
type paramScanner struct {
	text  []byte
	at    int
	again bool // a member was read that its object has already
}

// next returns the next character that is not space, and passes it.
func (s *paramScanner) next() byte {
	for {
		c := s.text[s.at]
		s.at++
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
}

// params reads the members of a request; false where they are unusual.
func (s *paramScanner) params(to *graphql.RawParams) bool {
	var seen [4]bool
	once := func(i int) bool {
		first := !seen[i]
		seen[i] = true
		return first
	}
	s.next() // the brace
	for c := s.next(); c != '}'; c = s.next() {
		if c == ',' {
			continue
		}
		name := s.raw()
		s.next() // the colon
		first := s.next()
		ok := false
		switch string(name) {
		case "query":
			ok = once(0) && s.stringOrNull(first, &to.Query)
		case "operationName":
			ok = once(1) && s.stringOrNull(first, &to.OperationName)
		case "variables":
			ok = once(2) && s.objectOrNull(first, &to.Variables)
		case "extensions":
			ok = once(3) && s.objectOrNull(first, &to.Extensions)
		}
		if !ok {
			return false
		}
	}
	return true
}

// stringOrNull reads a string, or null as none.
func (s *paramScanner) stringOrNull(first byte, to *string) bool {
	switch first {
	case '"':
		*to = s.string()
	case 'n':
		s.at += len("null") - 1
	default:
		return false
	}
	return true
}

// objectOrNull reads an object, or null as none.
func (s *paramScanner) objectOrNull(first byte, to *map[string]any) bool {
	switch first {
	case '{':
		*to = s.members()
	case 'n':
		s.at += len("null") - 1
	default:
		return false
	}
	return true
}

// value reads a value as encoding/json does, numbers as json.Number.
func (s *paramScanner) value(first byte) any {
	switch first {
	case '"':
		return s.string()
	case '{':
		return s.members()
	case '[':
		list := []any{}
		for c := s.next(); c != ']'; c = s.next() {
			if c != ',' {
				list = append(list, s.value(c))
			}
		}
		return list
	case 'n':
		s.at += len("null") - 1
		return nil
	case 't':
		s.at += len("true") - 1
		return true
	case 'f':
		s.at += len("false") - 1
		return false
	default:
		start := s.at - 1
		for ; s.at < len(s.text); s.at++ {
			if c := s.text[s.at]; (c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-' {
				break
			}
		}
		return json.Number(s.text[start:s.at])
	}
}

func (s *paramScanner) members() map[string]any {
	object := map[string]any{}
	for c := s.next(); c != '}'; c = s.next() {
		if c == ',' {
			continue
		}
		name := s.string()
		s.next() // the colon
		before := len(object)
		object[name] = s.value(s.next())
		s.again = s.again || len(object) == before
	}
	return object
}

// raw passes the rest of a string and returns it as it is written.
func (s *paramScanner) raw() []byte {
	start := s.at
	for s.text[s.at] != '"' {
		if s.text[s.at] == '\\' {
			s.at++
		}
		s.at++
	}
	s.at++
	return s.text[start : s.at-1]
}

// string passes the rest of a string and returns its text.
func (s *paramScanner) string() string {
	raw := s.raw()
	escape := bytes.IndexByte(raw, '\\')
	if escape < 0 {
		return string(raw)
	}
	plain := make([]byte, 0, len(raw))
	for escape >= 0 {
		plain = append(plain, raw[:escape]...)
		c := raw[escape+1]
		raw = raw[escape+2:]
		switch c {
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'u':
			r := rune(hex4(raw))
			if raw = raw[4:]; utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, rune(hex4(raw[2:])))
				raw = raw[6:]
			}
			plain = utf8.AppendRune(plain, r)
			escape = bytes.IndexByte(raw, '\\')
			continue
		}
		plain = append(plain, c)
		escape = bytes.IndexByte(raw, '\\')
	}
	return string(append(plain, raw...))
}

// hex4 reads four hexadecimal digits.
func hex4(text []byte) (n int32) {
	for _, c := range text[:4] {
		n <<= 4
		switch {
		case c <= '9':
			n |= int32(c - '0')
		default:
			n |= int32(c|0x20-'a') + 10
		}
	}
	return n
}
