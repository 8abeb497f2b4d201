package literal

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

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
