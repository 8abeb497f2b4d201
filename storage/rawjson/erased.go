package rawjson

import (
	"bytes"
	"strconv"
)

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
