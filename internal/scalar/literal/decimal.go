package literal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of decimals, so that comparing and printing them stays cheap.
const (
	MaxDecimalLength   = 1000 // bytes
	MaxDecimalExponent = 9999 // in either direction
)

// ErrDigit is the error of a number that lacks a digit, ErrZero that of one that
// begins with a needless zero.
var (
	ErrDigit = errors.New("a digit is missing")
	ErrZero  = errors.New("a number begins with a zero")
)

// Scan reads a number in JSON's grammar at the beginning of a text. It returns the
// number's length and whether it has neither a fraction nor an exponent; with an
// error, the offset at which it is.
func Scan[S string | []byte](s S) (n int, integer bool, err error) {
	digits := func() bool {
		from := n
		for n < len(s) && '0' <= s[n] && s[n] <= '9' {
			n++
		}
		return n > from
	}
	if n < len(s) && s[n] == '-' {
		n++
	}
	first := n
	ok := digits()
	if ok && s[first] == '0' && n > first+1 {
		return 0, false, ErrZero
	}
	integer = true
	if ok && n < len(s) && s[n] == '.' {
		integer = false
		n++
		ok = digits()
	}
	if ok && n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		integer = false
		n++
		if n < len(s) && (s[n] == '+' || s[n] == '-') {
			n++
		}
		ok = digits()
	}
	if !ok {
		return n, false, ErrDigit
	}
	return n, integer, nil
}

// Decimal checks an exact decimal number that a client sent, and returns it as it
// was given: trailing zeros say how exact it is. It is a string in the grammar of
// JSON ("-19.90", "1e-7"), or a number whose digits are still as they were written:
// one in variables, or an integer.
func Decimal(v any) (string, error) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case json.Number:
		s = v.String()
	case int64:
		return strconv.FormatInt(v, 10), nil
	case int:
		return strconv.Itoa(v), nil
	default:
		return "", fmt.Errorf("Decimal cannot be %s; write it in quotes, as \"19.90\", so that nothing is rounded", Show(v))
	}
	n, _, err := Scan(s)
	problem := ""
	switch {
	case len(s) > MaxDecimalLength:
		problem = fmt.Sprintf("it has %d characters, and at most %d are possible", len(s), MaxDecimalLength)
	case errors.Is(err, ErrZero):
		problem = "it must not begin with a needless zero"
	case err != nil && n == 0:
		problem = "it must begin with a digit, or a minus sign and a digit"
	case err != nil:
		problem = fmt.Sprintf("a digit must follow %s", Show(s[n-1:n]))
	case n < len(s):
		problem = fmt.Sprintf("%s is not part of a number", Show(s[n:n+1]))
	case !IsDecimal(s):
		problem = fmt.Sprintf("its exponent is beyond %d", MaxDecimalExponent)
	default:
		return s, nil
	}
	return "", fmt.Errorf("Decimal cannot be %s: %s; write it as %q or %q", Show(s), problem, "19.90", "-1.5e-7")
}

// InRange reports whether a number in JSON's grammar is one that a 64-bit float holds, as far
// as its size goes.
func InRange[S string | []byte](s S) bool {
	_, err := strconv.ParseFloat(string(s), 64)
	return !errors.Is(err, strconv.ErrRange)
}

// IsDecimal reports whether a text of any length is a number in JSON's grammar with
// an exponent within the limit.
func IsDecimal[S string | []byte](s S) bool {
	n, integer, err := Scan(s)
	if err != nil || n < len(s) {
		return false
	}
	if integer {
		return true
	}
	_, exponent, err := split(s)
	return err == nil && max(exponent, -exponent) <= MaxDecimalExponent
}

// split returns the parts of a number in JSON's grammar. The error is that of an
// exponent which is beyond an int.
func split[S string | []byte](s S) (mantissa S, exponent int, err error) {
	e := 0
	for e < len(s) && s[e] != 'e' && s[e] != 'E' {
		e++
	}
	if e < len(s) {
		exponent, err = strconv.Atoi(string(s[e+1:]))
	}
	return s[:e], exponent, err
}

// Number is ±0.d₁d₂… × 10^Exponent, with digits from '0' to '9' and no zeros at
// either end. Zero is the zero value.
type Number struct {
	Negative bool
	Digits   []byte
	Exponent int
}

// ParseDecimal returns the value of a text that IsDecimal accepts.
func ParseDecimal(s string) (Number, bool) { return parse(s, MaxDecimalExponent) }

// ParseNumber is ParseDecimal for exponents up to a million.
func ParseNumber(s string) (Number, bool) { return parse(s, 1e6) }

func parse(s string, maxExponent int) (Number, bool) {
	if n, _, err := Scan(s); err != nil || n < len(s) {
		return Number{}, false
	}
	mantissa, exponent, err := split(s)
	if err != nil || max(exponent, -exponent) > maxExponent {
		return Number{}, false
	}
	unsigned := strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	digits := append([]byte(whole), fraction...)
	significant := bytes.TrimLeft(digits, "0")
	if len(significant) == 0 {
		return Number{}, true
	}
	return Number{
		Negative: len(unsigned) < len(mantissa),
		Digits:   bytes.TrimRight(significant, "0"),
		Exponent: exponent + len(whole) - (len(digits) - len(significant)),
	}, true
}

// Compare returns -1, 0 or 1, as x is less than y, equal to it or greater.
func (x Number) Compare(y Number) int {
	if s := cmp.Compare(x.sign(), y.sign()); s != 0 {
		return s
	}
	return x.sign() * cmp.Or(cmp.Compare(x.Exponent, y.Exponent), bytes.Compare(x.Digits, y.Digits))
}

func (x Number) sign() int {
	switch {
	case len(x.Digits) == 0:
		return 0
	case x.Negative:
		return -1
	}
	return 1
}
