// Package rawjson finds values in JSON text without decoding it.
//
// Invariants:
//
//   - The text is compact and valid: documents are written in normal form (see
//     package normal). On other text the functions say that they failed, or find
//     wrong places; they never panic and always end.
//   - What is found is part of the text given; Set and Put make a new one.
package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// End returns the index behind the value that starts at i, or -1.
func End(b []byte, i int) int {
	if i < 0 || i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		return compositeEnd(b, i)
	}
	j := i
	for j < len(b) && b[j] != ',' && b[j] != '}' && b[j] != ']' && b[j] != ':' {
		j++
	}
	if j == i {
		return -1
	}
	return j
}

func stringEnd(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for k := i - 1; b[k] == '\\'; k-- { // stops at the opening quote at the latest
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i
		}
		for i < len(b)-1 && b[i] == '\\' { // one escape after the other
			i += 2
		}
	}
	return -1
}

func compositeEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// Members calls fn with each member of the object b: the name as it is written,
// without its quotes, and where the value lies. It returns false if b is not an
// object or fn returned false.
func Members(b []byte, fn func(name []byte, start, end int) bool) bool {
	if len(b) < 2 || b[0] != '{' {
		return false
	}
	i := 1
	if b[i] == '}' {
		return len(b) == 2
	}
	for {
		name, start, end := Member(b, i)
		if end < 0 || !fn(name, start, end) {
			return false
		}
		switch b[end] {
		case ',':
			i = end + 1
		case '}':
			return end == len(b)-1
		default:
			return false
		}
	}
}

// Member returns the member whose name begins at i, as Members does. The end is
// -1 where there is none; else there is a byte behind it.
func Member(b []byte, i int) (name []byte, start, end int) {
	if i < 0 || i >= len(b) || b[i] != '"' {
		return nil, 0, -1
	}
	nameEnd := stringEnd(b, i)
	if nameEnd < 0 || nameEnd >= len(b) || b[nameEnd] != ':' {
		return nil, 0, -1
	}
	if end = End(b, nameEnd+1); end >= len(b) {
		end = -1
	}
	return b[i+1 : nameEnd-1], nameEnd + 1, end
}

// Without returns an object without some of its members; what is not an object is empty.
func Without(b []byte, names []string) []byte {
	out := append(make([]byte, 0, len(b)+2), '{')
	Members(b, func(name []byte, start, end int) bool {
		for _, n := range names {
			if Is(name, n) {
				return true
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		begin := start - len(`"":`) - len(name)
		out = append(out, b[begin:end]...)
		return true
	})
	return append(out, '}')
}

// Elements calls fn with where each element of the array b lies. It returns
// false if b is not an array or fn returned false.
func Elements(b []byte, fn func(start, end int) bool) bool {
	if len(b) < 2 || b[0] != '[' {
		return false
	}
	i := 1
	if b[i] == ']' {
		return len(b) == 2
	}
	for {
		end := End(b, i)
		if end < 0 || end >= len(b) || !fn(i, end) {
			return false
		}
		switch b[end] {
		case ',':
			i = end + 1
		case ']':
			return end == len(b)-1
		default:
			return false
		}
	}
}

// IsNull reports whether the value is missing or null.
func IsNull(b []byte) bool { return len(b) == 0 || b[0] == 'n' }

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

// View is b as text, without a copy: it must not change as long as the text is there.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

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
func AppendString[S string | []byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
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

// erased begins the value that stands for one that was erased,
//
//	{"asof:erased":[FIRST,BY]}
//
// FIRST is the number of the version that first had the value, so that different values stay
// different, and BY that of the version that says who erased it. In a text the quotes would be
// escaped, so it is found without parsing.
const erased = `{"` + ErasedMember + `":[`

// ErasedMember is the member of the value that stands for an erased one.
const ErasedMember = "asof:erased"

// AppendErased appends the value that stands for an erased one.
func AppendErased(dst []byte, first, by int64) []byte {
	dst = strconv.AppendInt(append(dst, erased...), first, 10)
	return append(strconv.AppendInt(append(dst, ','), by, 10), "]}"...)
}

// Erased reports whether a value was erased.
func Erased(b []byte) bool { return len(b) > len(erased) && string(b[:len(erased)]) == erased }

// EachErased calls fn with each erased value that is in b: where it lies, and its numbers.
func EachErased(b []byte, fn func(start, end int, first, by int64)) {
	for at := 0; ; {
		n := bytes.Index(b[at:], []byte(erased))
		if n < 0 {
			return
		}
		start := at + n
		if at = End(b, start); at < 0 {
			return
		}
		list, _, _ := bytes.Cut(b[start+len(erased):at], []byte("]"))
		first, by, _ := bytes.Cut(list, []byte(","))
		fn(start, at, number(first), number(by))
	}
}

func number(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64) // 0 for what only looks like an erased value
	return n
}

// HideErased returns a value with null for what was erased in it; found is false where nothing was.
func HideErased(b []byte) (shown []byte, found bool) {
	at := 0
	EachErased(b, func(start, end int, _, _ int64) {
		shown, at = append(append(shown, b[at:start]...), "null"...), end
	})
	if at == 0 {
		return b, false
	}
	return append(shown, b[at:]...), true
}

// Find returns the value at a path of member names; nil where there is none.
func Find(raw []byte, names []string) []byte {
	for _, name := range names {
		var found []byte
		Members(raw, func(n []byte, start, end int) bool {
			if Is(n, name) {
				found = raw[start:end:end]
				return false
			}
			return true
		})
		if found == nil {
			return nil
		}
		raw = found
	}
	return raw
}

// Set returns an object with the value at a path replaced, or removed for nil.
// Objects on the way are made where they are missing.
func Set(object []byte, names []string, value []byte) []byte {
	if len(object) == 0 || object[0] != '{' {
		if value == nil {
			return object
		}
		object = []byte("{}")
	}
	if len(names) > 1 {
		inner := Find(object, names[:1])
		if value = Set(inner, names[1:], value); value == nil {
			return object
		}
	}
	return Put(object, Value{names[0], value})
}

// Value is a member of an object, or, with nil, that there is none.
type Value struct {
	Name string
	Raw  []byte
}

// Put returns an object with members replaced, added or removed.
func Put(object []byte, members ...Value) []byte {
	all, size := make([]Value, 0, 16), len("{}")
	put := func(m Value) {
		all, size = append(all, m), size+len(m.Name)+len(m.Raw)+len(`"":,`)
	}
	Members(object, func(n []byte, start, end int) bool {
		m := Value{Name(n), object[start:end]}
		if i := slices.IndexFunc(members, func(to Value) bool { return to.Name == m.Name }); i >= 0 {
			m.Raw = members[i].Raw
		}
		put(m)
		return true
	})
	for _, m := range members {
		if !slices.ContainsFunc(all, func(is Value) bool { return is.Name == m.Name }) {
			put(m)
		}
	}
	out := append(make([]byte, 0, size), '{')
	for _, m := range all {
		if m.Raw == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendString(out, m.Name), ':'), m.Raw...)
	}
	return append(out, '}')
}

// Lists returns the number of elements of all lists in a value, of which an empty one counts as one, and how deep
// lists and objects are nested in it.
func Lists(value []byte) (elements, depth int) {
	var lists []bool // which of the lists and objects around a place are lists
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			i = End(value, i) - 1
		case '[', '{':
			lists = append(lists, value[i] == '[')
			depth = max(depth, len(lists))
			if value[i] == '[' {
				elements++
			}
		case ',':
			if lists[len(lists)-1] {
				elements++
			}
		case ']', '}':
			lists = lists[:len(lists)-1]
		}
	}
	return elements, depth
}
