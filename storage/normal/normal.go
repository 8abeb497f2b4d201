// Package normal defines the form in which documents are stored.
//
// A document in normal form is a JSON object that is compact, in valid UTF-8,
// without duplicate member names at any depth; strings are escaped only where
// they must be; a number that is an integer in the range of int64 is written
// as one, any other of at most 17 digits as ECMAScript and RFC 8785 write it, and one
// of more, which no float64 needs, or beyond float64, as it was given. Members keep the
// order in which they were written.
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
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/rawjson"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 500

// SyntaxError says why a text is not a document, and where.
type SyntaxError struct {
	Offset  int // in bytes; of what is too deep, without the white space before it
	Message string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Message) }

// Object returns the normal form of a JSON object. Errors are *SyntaxError.
func Object(data []byte) ([]byte, error) {
	out, err := Value(data)
	if err == nil && out[0] != '{' {
		return nil, &SyntaxError{0, "a document is a JSON object"}
	}
	return out, err
}

// Value returns the normal form of any JSON value. Errors are *SyntaxError.
func Value(data []byte) ([]byte, error) {
	out, err := jsontext.AppendFormat(make([]byte, 0, len(data)), data)
	if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		message := strings.TrimPrefix(wrong.Err.Error(), "jsontext: ")
		if errors.Is(err, jsontext.ErrDuplicateName) {
			message = fmt.Sprintf("the member %q is there twice", wrong.JSONPointer.LastToken())
		}
		return nil, &SyntaxError{int(wrong.ByteOffset), message}
	}
	if err != nil {
		return nil, &SyntaxError{0, err.Error()}
	}
	return numbers(out)
}

// numbers returns a compact text with its numbers in normal form, as most of them are.
func numbers(in []byte) ([]byte, error) {
	var out []byte
	copied, depth := 0, 0
	for i := 0; i < len(in); i++ {
		switch c := in[i]; {
		case c == '"':
			i = rawjson.End(in, i) - 1
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return nil, &SyntaxError{i, fmt.Sprintf("nested more than %d deep", MaxDepth)}
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			end := rawjson.End(in, i)
			const safe = 18 // int64 holds all integers of 18 digits
			if text := in[i:end]; len(text) > safe || bytes.ContainsAny(text, ".eE") || string(text) == "-0" {
				out = appendNumber(append(out, in[copied:i]...), text)
				copied = end
			}
			i = end - 1
		}
	}
	if copied == 0 {
		return in, nil
	}
	return append(out, in[copied:]...), nil
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
	if len(number.Digits) > surelyShortest || number.Exponent > surelyFloat {
		// Others are normal where they are the shortest text of a float64, which for those closer to 0
		// than it is exact would take 40 µs to find out.
		if len(number.Digits) > mostDigits || number.Exponent > mostExponent || number.Exponent < leastExponent {
			return append(dst, text...)
		}
		x, err := strconv.ParseFloat(string(text), 64)
		shortest, ok := literal.ParseNumber(strconv.FormatFloat(x, 'e', -1, 64))
		if err != nil || !ok || shortest.Compare(number) != 0 {
			return append(dst, text...)
		}
	}
	return appendDecimal(dst, number)
}

// Numbers of so many digits are the shortest text of a float64, those with such an exponent are not
// too large for one; and the shortest text of any has at most so many digits, and such an exponent.
const (
	surelyShortest, mostDigits               = 15, 17
	surelyFloat, mostExponent, leastExponent = 308, 309, -306
)

// appendDecimal formats as ECMAScript formats a number with these digits (ECMA-262, Number::toString).
func appendDecimal(dst []byte, d literal.Number) []byte {
	zeros := func(n int) { dst = append(dst, strings.Repeat("0", n)...) }
	if d.Negative {
		dst = append(dst, '-')
	}
	switch n := d.Exponent; {
	case n > 21 || n < -5:
		dst = append(dst, d.Digits[0])
		if len(d.Digits) > 1 {
			dst = append(append(dst, '.'), d.Digits[1:]...)
		}
		dst = append(dst, 'e')
		if n > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, int64(n-1), 10)
	case n >= len(d.Digits):
		dst = append(dst, d.Digits...)
		zeros(n - len(d.Digits))
	case n > 0:
		dst = append(append(append(dst, d.Digits[:n]...), '.'), d.Digits[n:]...)
	default:
		dst = append(dst, "0."...)
		zeros(-n)
		dst = append(dst, d.Digits...)
	}
	return dst
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

// IsPlain reports whether a text in quotes is a string of JSON that stands for
// itself: valid UTF-8 without quotes, backslashes and control characters.
func IsPlain(text []byte) bool {
	ascii := true
	for _, c := range text {
		if c >= utf8.RuneSelf {
			ascii = false
		} else if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return ascii || utf8.Valid(text)
}

// member is one member of an object in normal form; the name as written.
type member struct{ name, value []byte }

// usual is how many members there is room for without an allocation.
const usual = 32

// appendMembers adds the members of an object to a list.
func appendMembers(list []member, object []byte) []member {
	rawjson.Members(object, func(name []byte, start, end int) bool {
		list = append(list, member{name, object[start:end]})
		return true
	})
	return list
}

// MaxNesting is how deep values may lie in others to be compared themselves, and not by a Hash. At
// each depth all that lies deeper is passed over to find where it ends, so that the work would grow
// with the depth times the size.
const MaxNesting = 32

// Equal reports whether two values in normal form are the same but for the order of members.
func Equal(a, b []byte) bool { return equal(a, b, 0) }

func equal(a, b []byte, depth int) bool {
	if bytes.Equal(a, b) {
		return true
	}
	// Reordering keeps the length.
	if len(a) != len(b) || len(a) == 0 || a[0] != b[0] {
		return false
	}
	switch {
	case depth > MaxNesting:
		return Hash(a) == Hash(b)
	case depth == 1 && len(a) >= longObject && Hash(a) != Hash(b): // else all would be passed over at each depth
		return false
	}
	switch a[0] {
	case '{':
		return equalObjects(a, b, depth)
	case '[':
		next := 1 // in b
		same := rawjson.Elements(a, func(start, end int) bool {
			stop := rawjson.End(b, next)
			same := stop >= 0 && equal(a[start:end], b[next:stop], depth+1)
			next = stop + 1
			return same
		})
		return same && next == len(b)
	}
	return false
}

// Hash is a hash of a value in normal form, which all that are equal to it have in this process. It
// reads the value once.
func Hash(v []byte) uint64 {
	h, _ := hashAt(v, 0)
	return h
}

// hashAt is Hash of the value that begins at v[i], and where that ends. Where there is none, as in
// damaged text, it is the end of the text.
func hashAt(v []byte, i int) (hash uint64, end int) {
	text := func(i int) (uint64, int) {
		end := rawjson.End(v, i)
		if end < 0 {
			return 0, len(v)
		}
		return maphash.Bytes(hashSeed, v[i:end]), end
	}
	if i >= len(v) || v[i] != '{' && v[i] != '[' {
		return text(i)
	}
	part := struct {
		kind          byte
		before, value uint64 // before: the name, or the hash of the elements before
	}{kind: v[i]}
	sum := uint64(0)
	for i++; i < len(v) && v[i] != '}' && v[i] != ']'; {
		if v[i] == ',' {
			i++
		}
		if part.before = sum; part.kind == '{' {
			part.before, i = text(i)
			i++ // the colon
		}
		part.value, i = hashAt(v, i)
		if h := maphash.Comparable(hashSeed, part); part.kind == '{' {
			sum += h // in any order
		} else {
			sum = h
		}
	}
	part.before, part.value = 0, sum
	return maphash.Comparable(hashSeed, part), i + 1
}

func equalObjects(a, b []byte, depth int) bool {
	var roomA, roomB [usual]member
	ma, mb := roomA[:0], roomB[:0]
	if len(a) > longObject {
		n, sum := tally(a)
		if m, other := tally(b); m != n || other != sum {
			return false
		}
		ma, mb = make([]member, 0, n), make([]member, 0, n)
	}
	ma, mb = appendMembers(ma, a), appendMembers(mb, b)
	if len(ma) != len(mb) {
		return false
	}
	sortMembers(ma)
	sortMembers(mb)
	for i := range ma {
		if !bytes.Equal(ma[i].name, mb[i].name) || !equal(ma[i].value, mb[i].value, depth+1) {
			return false
		}
	}
	return true
}

// longObject is the length from which on members are counted and hashed before there is a list of
// them, which takes 50 bytes for each.
const longObject = 4 << 10

var hashSeed = maphash.MakeSeed()

// tally returns how many members an object has, and a sum of hashes that all have that are equal to it.
func tally(object []byte) (n int, sum uint64) {
	rawjson.Members(object, func(name []byte, start, end int) bool {
		n++
		if object[start] != '{' && object[start] != '[' { // the members of these may have another order
			name = object[start-len(`":`)-len(name) : end]
		}
		sum += maphash.Bytes(hashSeed, name)
		return true
	})
	return n, sum
}

func sortMembers(ms []member) {
	slices.SortFunc(ms, func(x, y member) int { return bytes.Compare(x.name, y.name) })
}

// Changed returns the names of the top-level members in which two documents in
// normal form differ, sorted. Nil stands for a document without members.
func Changed(before, after []byte) []string {
	if bytes.Equal(before, after) {
		return nil
	}
	out, ok := changedInStep(before, after)
	if !ok {
		out = changedByName(before, after)
	}
	slices.Sort(out)
	return out
}

// changedInStep compares two documents that have the same members in the same
// order, as nearly all versions of one document do; it reports whether they have.
// A member is looked at more closely only from where its bytes differ.
func changedInStep(before, after []byte) (out []string, ok bool) {
	if len(before) < 3 || len(after) < 3 || before[0] != '{' || after[0] != '{' {
		return nil, false
	}
	i, j := 1, 1
	for {
		name, start, end := rawjson.Member(after, j)
		if end < 0 {
			return nil, false
		}
		// The text behind a value is part of it here: 1 is not the beginning of 12.
		if size := end + 1 - j; i+size <= len(before) && bytes.Equal(before[i:i+size], after[j:end+1]) {
			i += size
		} else {
			was, wasStart, wasEnd := rawjson.Member(before, i)
			if wasEnd < 0 || !bytes.Equal(was, name) || before[wasEnd] != after[end] {
				return nil, false
			}
			if !Equal(before[wasStart:wasEnd], after[start:end]) {
				out = append(out, rawjson.Name(name))
			}
			i = wasEnd + 1
		}
		if j = end + 1; after[end] == '}' {
			return out, true
		}
	}
}

// changedByName compares two documents whatever their members are.
func changedByName(before, after []byte) (out []string) {
	var roomOld, roomNow [usual]member
	old, now := appendMembers(roomOld[:0], before), appendMembers(roomNow[:0], after)
	sortMembers(old)
	sortMembers(now)
	for len(old) > 0 || len(now) > 0 {
		switch order := nextName(old, now); {
		case order < 0:
			out = append(out, rawjson.Name(old[0].name))
			old = old[1:]
		case order > 0:
			out = append(out, rawjson.Name(now[0].name))
			now = now[1:]
		default:
			if !Equal(old[0].value, now[0].value) {
				out = append(out, rawjson.Name(old[0].name))
			}
			old, now = old[1:], now[1:]
		}
	}
	return out
}

func nextName(old, now []member) int {
	switch {
	case len(old) == 0:
		return 1
	case len(now) == 0:
		return -1
	default:
		return bytes.Compare(old[0].name, now[0].name)
	}
}
