// Package literal holds the grammar of numbers, decimals, moments and calendar
// dates, for what clients send and for what documents hold.
//
// Clients' values arrive as string, bool, json.Number, int64, float64, []any,
// map[string]any or nil: numbers as json.Number from variables, and as int64 or
// float64 from the text of a query.
//
// Invariants: what is accepted from clients is exact (nothing is rounded or cut),
// unambiguous (a moment has an offset) and real (no 30th of February); a string is
// not a number, a number is not a string. An error names what was given and shows a
// good example. The package has no state and imports nothing of the project.
package literal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Int returns a client's value as an integer of 32 bits. A number without a
// fraction, such as 1.0 or 1e3, is not one in GraphQL's grammar.
func Int(v any) (int, error) {
	var n int64
	var err error
	switch v := v.(type) {
	case int64:
		n = v
	case int:
		n = int64(v)
	case int32:
		n = int64(v)
	case float64:
		if n = int64(v); float64(n) != v || math.Abs(v) > 1<<53 {
			err = strconv.ErrSyntax
		}
	case json.Number:
		n, err = strconv.ParseInt(v.String(), 10, 64)
	default:
		err = strconv.ErrSyntax
	}
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("Int cannot be %s; write a whole number without quotes, as 42", Show(v))
	case err != nil || n < math.MinInt32 || n > math.MaxInt32:
		return 0, fmt.Errorf("Int cannot be %s; it has 32 bits: %d to %d", Show(v), math.MinInt32, math.MaxInt32)
	}
	return int(n), nil
}

// Float returns a client's value as a finite number.
func Float(v any) (float64, error) {
	var x float64
	var err error
	switch v := v.(type) {
	case float64:
		x = v
	case int64:
		x = float64(v)
	case int:
		x = float64(v)
	case int32:
		x = float64(v)
	case json.Number:
		if tiny(v.String()) {
			return 0, fmt.Errorf("Float cannot be %s; it is 0, or at least 1e-307 away from it", Show(v))
		}
		x, err = strconv.ParseFloat(v.String(), 64)
	default:
		err = strconv.ErrSyntax
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("Float cannot be %s; the largest is about 1.8e308", Show(v))
	case err != nil || math.IsInf(x, 0) || math.IsNaN(x):
		return 0, fmt.Errorf("Float cannot be %s; write a number without quotes, as 0.5", Show(v))
	}
	return x, nil
}

// ID returns a client's value as an id: a string, or an integer of any length,
// which becomes its decimal digits.
func ID(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case int:
		return strconv.Itoa(v), nil
	case json.Number:
		if n, integer, err := Scan(v.String()); err == nil && integer && n == len(v) {
			return v.String(), nil
		}
	}
	return "", fmt.Errorf("ID cannot be %s; write it as a string, as \"vaultwarden\", or as an integer", Show(v))
}

// Show describes a client's value for an error, cut where it is long.
func Show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case json.Number:
		return cut(v.String())
	case string:
		return strconv.Quote(cut(v))
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return cut(fmt.Sprint(v))
	}
}

func cut(s string) string {
	const limit = 60
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// DateTime returns a moment that a client sent, in UTC. It is in the format of
// RFC 3339 with an offset ("Z" or "+02:00"; "-00:00", which means that the offset
// is unknown, is refused), and exact to the microsecond: further digits must be
// zero. Leap seconds (":60") are refused. Years are 0001 to 9999, in UTC too.
//
// Moments in documents are what time.Parse accepts: earlier programs accepted more.
func DateTime(v any) (time.Time, error) {
	s, ok := v.(string)
	if !ok {
		return time.Time{}, fmt.Errorf("DateTime cannot be %s; write it as %q", Show(v), "2024-03-01T12:30:00Z")
	}
	return moment(s, false)
}

// CutDateTime is DateTime for moments that were written down elsewhere: digits
// beyond the microsecond are cut.
func CutDateTime(s string) (time.Time, error) { return moment(s, true) }

func moment(s string, cut bool) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	t = t.UTC()
	problem := ""
	if err != nil {
		problem = parseProblem(err, "it is not in the format of RFC 3339")
	} else {
		problem = momentProblem(s, t, cut)
	}
	if problem != "" {
		return time.Time{}, fmt.Errorf("DateTime cannot be %s: %s; write it as %q or %q", Show(s), problem, "2024-03-01T12:30:00Z", "2024-03-01T14:30:00.25+02:00")
	}
	return t.Truncate(time.Microsecond), nil
}

// momentProblem is what is wrong with a moment that package time accepts.
func momentProblem(s string, t time.Time, cut bool) string {
	clock, offset := s[:len(s)-1], "Z"
	if !strings.HasSuffix(s, offset) {
		clock, offset = s[:len(s)-len("+00:00")], s[len(s)-len("+00:00"):]
	}
	const whole, exact = len("2006-01-02T15:04:05"), len("2006-01-02T15:04:05.000000")
	switch {
	case s[:4] == "0000":
		return "there is no year 0000"
	case t.Year() < 1 || t.Year() > 9999:
		return "its year in UTC is outside 0001 to 9999"
	case len(clock) < whole || clock[len("2006-01-02T15")] != ':' || len(clock) > whole && clock[whole] != '.':
		return "it is not in the format of RFC 3339"
	case !cut && len(clock) > exact && strings.Trim(clock[exact:], "0") != "":
		return "moments are exact to the microsecond, which is 6 digits after the point"
	case offset == "-00:00":
		return "-00:00 means that the offset is unknown"
	case offset != "Z" && (offset[1:3] > "23" || offset[4:] > "59"):
		return "there is no offset " + offset
	}
	return ""
}

// parseProblem is what package time says of a text, or that it has another form.
func parseProblem(err error, form string) string {
	const outside = " out of range"
	var pe *time.ParseError
	switch {
	case !errors.As(err, &pe):
	case strings.HasSuffix(pe.Message, outside): // ": day out of range"
		return "its " + strings.TrimSuffix(strings.TrimPrefix(pe.Message, ": "), outside) + " does not exist"
	case pe.LayoutElem == "Z07:00" && pe.ValueElem == "":
		return "the offset is missing"
	}
	return form
}

// Date checks a day of the calendar that a client sent, "2006-01-02", years 0001 to
// 9999, and returns it as it was given.
func Date(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("Date cannot be %s; write it as %q", Show(v), "2024-03-01")
	}
	_, err := time.Parse(time.DateOnly, s)
	problem := ""
	switch {
	case err != nil:
		problem = parseProblem(err, "a date has four digits of the year, two of the month and two of the day")
	case s[:4] == "0000":
		problem = "there is no year 0000"
	default:
		return s, nil
	}
	return "", fmt.Errorf("Date cannot be %s: %s; write it as %q", Show(s), problem, "2024-03-01")
}

// IsDate reports whether a text is a day that exists, as documents hold them. The
// year 0000 is one, which Date does not accept any more.
func IsDate[S string | []byte](s S) bool {
	// Reads of whole pages call this: it takes a fifth of the time of package time.
	if len(s) != len(time.DateOnly) || s[4] != '-' || s[7] != '-' {
		return false
	}
	n := 0
	for i := range len(s) {
		switch c := s[i] - '0'; {
		case i == 4 || i == 7:
		case c > 9:
			return false
		default:
			n = 10*n + int(c)
		}
	}
	year, month, day := n/10000, n/100%100, n%100
	if month < 1 || month > 12 || day < 1 || day > 31 {
		return false
	}
	return day <= 28 || time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() == day
}

// Limits of decimals, so that comparing and printing them stays cheap.
const (
	MaxDecimalLength   = 1000 // bytes
	maxDecimalExponent = 9999 // in either direction
)

// errDigit is the error of a number that lacks a digit, ErrZero that of one that
// begins with a needless zero.
var (
	errDigit = errors.New("a digit is missing")
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
		return n, false, errDigit
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
		problem = fmt.Sprintf("its exponent is beyond %d", maxDecimalExponent)
	default:
		return s, nil
	}
	return "", fmt.Errorf("Decimal cannot be %s: %s; write it as %q or %q", Show(s), problem, "19.90", "-1.5e-7")
}

// TextLength returns how many bytes a text has in a JSON string, between the quotes, or somewhat more.
func TextLength(s string) int {
	n := len(s)
	for i := range len(s) {
		if s[i] < ' ' {
			n += len(`\u0000`) - 1
		} else if s[i] == '"' || s[i] == '\\' {
			n++
		}
	}
	return n
}

// InRange reports whether a number in JSON's grammar is one that a 64-bit float holds, as far
// as its size goes.
func InRange[S string | []byte](s S) bool {
	if tiny(string(s)) {
		return true
	}
	_, err := strconv.ParseFloat(string(s), 64)
	return !errors.Is(err, strconv.ErrRange)
}

// tiny reports whether a text is a number, written with an exponent, that is not 0 and closer to it
// than 1e-307. A float64 has fewer digits there, and strconv takes 40 µs to find which.
func tiny(s string) bool {
	if at := strings.LastIndexByte(s, '-'); at < 2 || s[at-1] != 'e' && s[at-1] != 'E' {
		return false
	}
	n, ok := ParseNumber(s)
	if !ok { // the exponent may be beyond those that it reads
		end, _, err := Scan(s)
		return err == nil && end == len(s) && strings.ContainsAny(s[:strings.LastIndexAny(s, "eE")], "123456789")
	}
	return len(n.Digits) > 0 && n.Exponent < -306
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
	return err == nil && max(exponent, -exponent) <= maxDecimalExponent
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
func ParseDecimal(s string) (Number, bool) { return parse(s, maxDecimalExponent) }

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
