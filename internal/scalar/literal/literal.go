// Package literal parses the text of the scalars that GraphQL lacks: moments,
// calendar dates and exact decimals.
//
// Invariants: what is accepted is exact (nothing is rounded or cut), unambiguous
// (a moment has an offset) and real (no 30th of February). An error says what was
// given and shows a good example. The package has no state and imports nothing
// of the project.
package literal

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits of decimals, so that comparing and printing them stays cheap.
const (
	MaxDecimalLength   = 256  // bytes
	MaxDecimalExponent = 9999 // in either direction
)

// Examples of good values, as they are shown in errors.
const (
	exampleDateTime = "2024-03-01T12:30:00Z"
	exampleDate     = "2024-03-01"
	exampleDecimal  = "19.90"
)

// DateTime parses a moment in the format of RFC 3339 with an offset ("Z" or
// "+02:00"; "-00:00", which means that the offset is unknown, is refused) and
// returns it in UTC. It is exact to the microsecond: further digits must be
// zero. Leap seconds (":60") cannot be represented and are refused. Years are
// 0001 to 9999, in UTC too.
func DateTime(s string) (time.Time, error) { return moment(s, false) }

// CutDateTime is DateTime for moments that were written down elsewhere: digits
// beyond the microsecond are cut.
func CutDateTime(s string) (time.Time, error) { return moment(s, true) }

func moment(s string, cut bool) (time.Time, error) {
	bad := func(format string, args ...any) (time.Time, error) {
		return time.Time{}, fmt.Errorf("DateTime cannot be %s: %s; write it as %q or %q",
			show(s), fmt.Sprintf(format, args...), exampleDateTime, "2024-03-01T14:30:00.25+02:00")
	}
	if len(s) < len("2006-01-02") || !datePattern(s[:10]) {
		return bad("it must begin with a date like %q", exampleDate)
	}
	if problem := dateProblem(s[:10]); problem != "" {
		return bad("%s", problem)
	}
	if len(s) < len("2006-01-02T15:04:05") || s[10] != 'T' || s[13] != ':' || s[16] != ':' ||
		!digits(s[11:13]) || !digits(s[14:16]) || !digits(s[17:19]) {
		return bad("after the date comes T and a time like %q", "12:30:00")
	}
	switch {
	case s[11:13] > "23":
		return bad("there is no hour %s", s[11:13])
	case s[14:16] > "59":
		return bad("there is no minute %s", s[14:16])
	case s[17:19] == "60":
		return bad("leap seconds are not supported; use second 59")
	case s[17:19] > "59":
		return bad("there is no second %s", s[17:19])
	}
	rest, micros := s[19:], 0
	if strings.HasPrefix(rest, ".") {
		n := 1 + leadingDigits(rest[1:])
		if n == 1 {
			return bad("digits must follow the point")
		}
		if !cut && n > 7 && strings.Trim(rest[7:n], "0") != "" {
			return bad("moments are exact to the microsecond, which is 6 digits after the point")
		}
		micros = number(rest[1:min(n, 7)])
		for range 7 - min(n, 7) {
			micros *= 10
		}
		rest = rest[n:]
	}
	if problem := offsetProblem(rest); problem != "" {
		return bad("%s", problem)
	}
	minutes := number(s[11:13])*60 + number(s[14:16])
	if rest != "Z" {
		offset := number(rest[1:3])*60 + number(rest[4:6])
		if rest[0] == '+' {
			offset = -offset
		}
		minutes += offset
	}
	t := time.Date(number(s[:4]), time.Month(number(s[5:7])), number(s[8:10]), 0, minutes, number(s[17:19]), micros*1000, time.UTC)
	if t.Year() < 1 || t.Year() > 9999 {
		return bad("its year in UTC is outside 0001 to 9999")
	}
	return t, nil
}

func offsetProblem(s string) string {
	switch {
	case s == "Z":
		return ""
	case s == "":
		return "the offset is missing"
	case len(s) != len("+00:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' || !digits(s[1:3]) || !digits(s[4:6]):
		return fmt.Sprintf("after the time comes Z or an offset like \"+02:00\", not %s", show(s))
	case s[1:3] > "23" || s[4:6] > "59":
		return fmt.Sprintf("there is no offset %s", s)
	case s == "-00:00":
		return "-00:00 means that the offset is unknown"
	default:
		return ""
	}
}

// Date parses a day of the calendar, "2006-01-02", years 0001 to 9999, and
// returns it as it was given.
func Date(s string) (string, error) {
	problem := "a date has four digits of the year, two of the month and two of the day"
	if datePattern(s) {
		problem = dateProblem(s)
	}
	if problem != "" {
		return "", fmt.Errorf("Date cannot be %s: %s; write it as %q", show(s), problem, exampleDate)
	}
	return s, nil
}

func datePattern(s string) bool {
	return len(s) == 10 && s[4] == '-' && s[7] == '-' && digits(s[:4]) && digits(s[5:7]) && digits(s[8:])
}

func dateProblem(s string) string {
	if s[:4] == "0000" {
		return "there is no year 0000"
	}
	if s[5:7] < "01" || s[5:7] > "12" {
		return fmt.Sprintf("there is no month %s", s[5:7])
	}
	if day := number(s[8:]); day < 1 || day > 28 && day > daysIn(number(s[:4]), number(s[5:7])) {
		return fmt.Sprintf("there is no day %s in %s", s[8:], s[:7])
	}
	return ""
}

func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// Decimal checks an exact decimal number, written as in JSON ("-19.90",
// "1e-7"), and returns it as it was given: trailing zeros say how exact it is.
func Decimal(s string) (string, error) {
	if problem := decimalProblem(s); problem != "" {
		return "", fmt.Errorf("Decimal cannot be %s: %s; write it as %q or %q", show(s), problem, exampleDecimal, "-1.5e-7")
	}
	return s, nil
}

func decimalProblem(s string) string {
	if len(s) > MaxDecimalLength {
		return fmt.Sprintf("it has %d characters, and at most %d are possible", len(s), MaxDecimalLength)
	}
	rest := strings.TrimPrefix(s, "-")
	whole := leadingDigits(rest)
	switch {
	case whole == 0:
		return "it must begin with a digit, or a minus sign and a digit"
	case whole > 1 && rest[0] == '0':
		return "it must not begin with a needless zero"
	}
	rest = rest[whole:]
	if strings.HasPrefix(rest, ".") {
		n := leadingDigits(rest[1:])
		if n == 0 {
			return "digits must follow the point"
		}
		rest = rest[1+n:]
	}
	if rest == "" {
		return ""
	}
	if rest[0] != 'e' && rest[0] != 'E' {
		return fmt.Sprintf("%s is not part of a number", show(rest[:1]))
	}
	exponent := strings.TrimPrefix(rest[1:], "+")
	if len(exponent) == len(rest)-1 {
		exponent = strings.TrimPrefix(exponent, "-")
	}
	if n := leadingDigits(exponent); n == 0 || n != len(exponent) {
		return "digits must follow the e"
	}
	if n, err := strconv.Atoi(exponent); err != nil || n > MaxDecimalExponent {
		return fmt.Sprintf("its exponent is beyond %d", MaxDecimalExponent)
	}
	return ""
}

func digits(s string) bool { return s != "" && leadingDigits(s) == len(s) }

// number is the value of a few digits.
func number(s string) int {
	n := 0
	for i := range len(s) {
		n = 10*n + int(s[i]-'0')
	}
	return n
}

func leadingDigits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// show quotes what was given, cut where it is long.
func show(s string) string {
	const limit = 60
	if len(s) > limit {
		return strconv.Quote(strings.ToValidUTF8(s[:limit], "")) + " …"
	}
	return strconv.Quote(s)
}
