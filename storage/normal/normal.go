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
