package drivertest

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/asof/asof/storage/driver"
)

// quoted writes a JSON string in normal form.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string is always encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// pools has, for each kind, JSON texts of values that are of the kind or just
// not, small enough that random documents and conditions often meet.
type pools struct {
	strings, ints, floats, bools, instants, dates, decimals, others []string
}

func newPools() *pools {
	texts := func(list ...string) []string {
		for i, s := range list {
			list[i] = quoted(s)
		}
		return list
	}
	return &pools{
		strings: texts("", "a", "A", "ab", "aB", "abc", "b", "a%b", "a_b", "%", "_", "a*b", "*", "?", "[a]", "[^a]", "\\", "\\%", "a\\b", "'", "''", "\"",
			"$", "^a", "a.c", "(", "é", "É", "e\u0301", "İ", "i", "I", "ı", "ß", "ẞ", "ss", "Σ", "σ", "ς", "K", "k", "日本", "日", "🎉", "\uffff", "\U00010000",
			"\x00", "a\x00", "a\x00b", "\x01", "\x7f", " ", " a", "a ", "\n", "\u2028", "<b>&", "null", "true", "1", "1.0", "[]", "{}",
			"2024-03-01", "2024-03-01T12:00:00Z", strings.Repeat("a", 4000), strings.Repeat("a", 4000)+"b"),
		ints: []string{
			"0", "1", "-1", "2", "3", "9", "10", "100", "9007199254740992", "9007199254740993", "-9007199254740993",
			"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "1.5", "1e+300", "0.1",
		},
		floats: []string{
			"0", "1", "-1", "0.1", "0.2", "0.30000000000000004", "0.3", "1.5", "-2.25", "1e-7", "1e+21", "1e+300", "5e-324",
			"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "1.7976931348623157e+308",
			"0.1000000000000000055511151231257827",
		},
		bools: []string{"true", "false", "true", "false", "0", "1"},
		instants: texts("2024-03-01T12:00:00Z", "2024-03-01T12:00:00.5Z", "2024-03-01T12:00:00.50Z", "2024-03-01T12:00:00.500000999Z", "2024-03-01T14:00:00+02:00",
			"2024-03-01T12:00:00.000001Z", "2024-03-01T11:59:59.999999999Z", "1969-12-31T23:59:59.9999999Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
			"9999-12-31T23:59:59.999999Z", "2024-02-29T00:00:00-23:59", "2023-02-29T00:00:00Z", "2024-03-01T24:00:00Z", "2024-03-01T12:00:00",
			"2024-03-01", "2024-03-01 12:00:00Z", "2024-03-01T12:00:00,5Z", "2024-03-01T2:00:00Z", "2024-03-01T12:00:60Z", "", "now"),
		dates: texts("2024-03-01", "2024-02-29", "2023-12-31", "0001-01-01", "9999-12-31", "2023-02-29", "2024-13-01", "2024-3-1", "2024-03-01T00:00:00Z",
			"20240301", "2024-03-01 ", "", "a"),
		decimals: append(texts("1", "1.0", "1.50", "1.5", "-0", "0", "0.0", "1e3", "1000", "1E-2", "0.01", "-1.5", "12345678901234567890.123456789",
			"12345678901234567890.123456788", "12345678901234567890", "1e100", "abc", "", "1.", ".5", "+1", " 1", "01", "NaN", "Infinity", "0x1", "1_0", "-"),
			"1", "1.5", "0", "12345678901234567890", "1000", "0.01", "-1.5", "1e+100"),
		others: []string{"null", "true", "0", `""`, `"a"`, "[]", "[1]", `["a"]`, "{}", `{"s":"a"}`, `{"n":1}`, "[[]]", "[null]"},
	}
}

func (p *pools) of(kind driver.Kind) []string {
	switch kind {
	case driver.KindString:
		return p.strings
	case driver.KindInt:
		return p.ints
	case driver.KindFloat:
		return p.floats
	case driver.KindBool:
		return p.bools
	case driver.KindInstant:
		return p.instants
	case driver.KindDate:
		return p.dates
	default:
		return p.decimals
	}
}
