package rawjson

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Unquote returns the text of a JSON string with its quotes.
func Unquote(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return "", false
	}
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1]), true
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		return "", false
	}
	return s, true
}

// Name returns a member's name from the form in which Members gives it.
func Name(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	quoted := make([]byte, 0, len(b)+2)
	quoted = append(append(append(quoted, '"'), b...), '"')
	s, _ := Unquote(quoted)
	return s
}

// Is reports whether a member has a name, given in the form in which Members gives it.
func Is(member []byte, name string) bool {
	return string(member) == name || len(member) > len(name) && bytes.IndexByte(member, '\\') >= 0 && Name(member) == name
}

const hex = "0123456789abcdef"

// AppendString appends s as a JSON string, escaping only what must be: quotes,
// backslashes and control characters, as in RFC 8785. Invalid UTF-8 becomes
// U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
