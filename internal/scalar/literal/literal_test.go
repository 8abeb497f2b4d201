package literal_test

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/internal/scalar/literal"
)

func TestDateTime(t *testing.T) {
	tests := []struct {
		in   string
		want string // RFC 3339 with nanoseconds, in UTC; or a part of the error after "!"
	}{
		{"2024-03-01T12:30:00Z", "2024-03-01T12:30:00Z"},
		{"2024-03-01T14:30:00.25+02:00", "2024-03-01T12:30:00.25Z"},
		{"2024-02-29T23:59:59.999999-11:30", "2024-03-01T11:29:59.999999Z"},
		{"2024-03-01T12:30:00.123456000Z", "2024-03-01T12:30:00.123456Z"},
		{"2024-03-01T12:30:00.1234560000000000000000Z", "2024-03-01T12:30:00.123456Z"},
		{"0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
		{"9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"},
		{"1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"},
		{"2024-03-01T12:30:00+00:00", "2024-03-01T12:30:00Z"},

		{"2024-03-01T12:30:00", "!the offset is missing"},
		{"2024-03-01T12:30:00.5", "!the offset is missing"},
		{"2024-03-01", "!it is not in the format of RFC 3339"},
		{"2024-03-01 12:30:00Z", "!it is not in the format of RFC 3339"},
		{"2024-03-01t12:30:00Z", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30Z", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30:00z", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30:00+02", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30:00+0200", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30:00+24:00", "!there is no offset +24:00"},
		{"2024-03-01T12:30:00+02:60", "!there is no offset +02:60"},
		{"2024-03-01T12:30:00-00:00", "!-00:00 means that the offset is unknown"},
		{"2024-03-01T12:30:00ZZ", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30:00.Z", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30:00,5Z", "!it is not in the format of RFC 3339"},
		{"2024-03-01T12:30:00.1234567Z", "!exact to the microsecond"},
		{"2024-03-01T12:30:00.000000001Z", "!exact to the microsecond"},
		{"2024-02-30T12:30:00Z", "!its day does not exist"},
		{"2023-02-29T12:30:00Z", "!its day does not exist"},
		{"2024-13-01T12:30:00Z", "!its month does not exist"},
		{"2024-00-01T12:30:00Z", "!its month does not exist"},
		{"2024-03-00T12:30:00Z", "!its day does not exist"},
		{"2024-03-01T24:00:00Z", "!its hour does not exist"},
		{"2024-03-01T12:60:00Z", "!its minute does not exist"},
		{"2016-12-31T23:59:60Z", "!its second does not exist"},
		{"2024-03-01T12:30:61Z", "!its second does not exist"},
		{"0000-01-01T00:00:00Z", "!there is no year 0000"},
		{"9999-12-31T23:59:59-01:00", "!its year in UTC is outside"},
		{"0001-01-01T00:00:00+01:00", "!its year in UTC is outside"},
		{"12024-03-01T12:30:00Z", "!it is not in the format of RFC 3339"},
		{"-024-03-01T12:30:00Z", "!it is not in the format of RFC 3339"},
		{"", "!it is not in the format of RFC 3339"},
		{"yesterday", "!it is not in the format of RFC 3339"},
		{"2024-03-0１T12:30:00Z", "!it is not in the format of RFC 3339"},
		{strings.Repeat("9", 1000), "!it is not in the format of RFC 3339"},
	}
	for _, test := range tests {
		got, err := literal.DateTime(test.in)
		if part, isErr := strings.CutPrefix(test.want, "!"); isErr {
			checkError(t, test.in, err, part, `"2024-03-01T12:30:00Z"`)
			continue
		}
		if err != nil || got.Format(time.RFC3339Nano) != test.want {
			t.Errorf("DateTime(%q) = %v, %v; want %s", test.in, got, err, test.want)
		}
	}
}

func TestCutDateTime(t *testing.T) {
	for in, want := range map[string]string{
		"2024-03-01T12:30:00.1234567Z":              "2024-03-01T12:30:00.123456Z",
		"2024-03-01T12:30:00.999999999999999+23:59": "2024-02-29T12:31:00.999999Z",
		"2024-03-01T12:30:00.000000001-01:30":       "2024-03-01T14:00:00Z",
		"2024-12-31T23:30:00.5-00:30":               "2025-01-01T00:00:00.5Z",
	} {
		if got, err := literal.CutDateTime(in); err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("CutDateTime(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"2024-03-01T12:30:00.Z", "2024-03-01T1:30:00Z", "2024-03-01T12:30:00,5Z", "2024-03-01T12:30:00.1234567-00:00"} {
		if got, err := literal.CutDateTime(in); err == nil {
			t.Errorf("CutDateTime(%q) = %v", in, got)
		}
	}
}

// checkError checks that an error says what is wrong, what was given and what
// would be good, and stays short.
func checkError(t *testing.T, in string, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%q was accepted", in)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error for %q is %q, without %q", in, err, p)
		}
	}
	if len(err.Error()) > 300 {
		t.Errorf("the error for %q has %d bytes", in, len(err.Error()))
	}
}

func TestDate(t *testing.T) {
	for _, in := range []string{"2024-02-29", "0001-01-01", "9999-12-31", "2000-02-29"} {
		if got, err := literal.Date(in); err != nil || got != in {
			t.Errorf("Date(%q) = %q, %v", in, got, err)
		}
	}
	for in, part := range map[string]string{
		"2023-02-29":           "its day does not exist",
		"1900-02-29":           "its day does not exist",
		"2024-04-31":           "its day does not exist",
		"2024-13-01":           "its month does not exist",
		"0000-01-01":           "there is no year 0000",
		"2024-3-1":             "a date has four digits",
		"24-03-01":             "a date has four digits",
		"2024/03/01":           "a date has four digits",
		"2024-03-01T00:00:00Z": "a date has four digits",
		" 2024-03-01":          "a date has four digits",
		"":                     "a date has four digits",
	} {
		_, err := literal.Date(in)
		checkError(t, in, err, part, `"2024-03-01"`)
	}
}

func TestDecimal(t *testing.T) {
	for _, in := range []string{
		"0", "-0", "1", "19.90", "-19.90", "0.0000000000000000000000000000001", "1e5", "1E+5", "1.5e-7", "123456789012345678901234567890",
		"1e9999", "-1e-9999", "0.10",
	} {
		if got, err := literal.Decimal(in); err != nil || got != in {
			t.Errorf("Decimal(%q) = %q, %v", in, got, err)
		}
	}
	for in, part := range map[string]string{
		"":                        "it must begin with a digit",
		"-":                       `a digit must follow "-"`,
		"+1":                      "it must begin with a digit",
		".5":                      "it must begin with a digit",
		"NaN":                     "it must begin with a digit",
		"Infinity":                "it must begin with a digit",
		" 1":                      "it must begin with a digit",
		"01":                      "it must not begin with a needless zero",
		"-00.5":                   "it must not begin with a needless zero",
		"1.":                      `a digit must follow "."`,
		"1.e5":                    `a digit must follow "."`,
		"1e":                      `a digit must follow "e"`,
		"1e+":                     `a digit must follow "+"`,
		"1e+-5":                   `a digit must follow "+"`,
		"1e5.5":                   `"." is not part of a number`,
		"1,5":                     `"," is not part of a number`,
		"1_000":                   `"_" is not part of a number`,
		"0x10":                    `"x" is not part of a number`,
		"1 ":                      `" " is not part of a number`,
		"1e10000":                 "its exponent is beyond 9999",
		"1e99999999999999999999":  "its exponent is beyond 9999",
		strings.Repeat("9", 1001): "it has 1001 characters",
	} {
		_, err := literal.Decimal(in)
		checkError(t, in, err, part, `"19.90"`)
	}
}

func FuzzDateTime(f *testing.F) {
	f.Add("2024-03-01T12:30:00Z")
	f.Add("2024-02-29T23:59:59.999999-11:30")
	f.Add("2024-03-01T12:30:00.1234560000000Z")
	f.Add("9999-12-31T23:59:59-23:59")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := literal.DateTime(s)
		if err != nil {
			if got != (time.Time{}) {
				t.Errorf("DateTime(%q) = %v with the error %v", s, got, err)
			}
			return
		}
		if got.Nanosecond()%1000 != 0 || got.Location() != time.UTC {
			t.Errorf("DateTime(%q) = %v is not exact to the microsecond in UTC", s, got)
		}
		again, err := literal.DateTime(got.Format("2006-01-02T15:04:05.999999Z07:00"))
		if err != nil || !again.Equal(got) {
			t.Errorf("DateTime(%q) = %v; written and read again: %v, %v", s, got, again, err)
		}
		if std, err := time.Parse(time.RFC3339, s); err == nil && !std.Equal(got) {
			t.Errorf("DateTime(%q) = %v; package time says %v", s, got, std)
		}
	})
}

func FuzzDate(f *testing.F) {
	f.Add("2024-02-29")
	f.Add("2023-02-29")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := literal.Date(s)
		std, stdErr := time.Parse(time.DateOnly, s)
		if (err == nil) != (stdErr == nil && std.Year() > 0) {
			t.Errorf("Date(%q) = %q, %v; package time says %v, %v", s, got, err, std, stdErr)
		}
		if literal.IsDate(s) != (stdErr == nil) {
			t.Errorf("IsDate(%q) = %v; package time says %v, %v", s, literal.IsDate(s), std, stdErr)
		}
	})
}

// Numbers compare as big.Rat compares them, and documents hold longer ones and
// greater exponents than clients may send.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"19.90", "-1.5e-7", "1e9999", "-0.0", "10e-1", "0.009", "-12345678901234567890.2"} {
		f.Add(s, "1.0")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		got, err := literal.Decimal(s)
		if err == nil && got != s {
			t.Errorf("Decimal(%q) = %q", s, got)
		}
		number, ok := literal.ParseDecimal(s)
		if ok != literal.IsDecimal(s) || ok != (err == nil || len(s) > literal.MaxDecimalLength && ok) {
			t.Errorf("ParseDecimal(%q) = %v, %t, IsDecimal %t, Decimal %v", s, number, ok, literal.IsDecimal(s), err)
		}
		second, alsoOK := literal.ParseDecimal(other)
		if !ok || !alsoOK {
			return
		}
		x, isX := new(big.Rat).SetString(s)
		y, isY := new(big.Rat).SetString(other)
		if !isX || !isY {
			t.Fatalf("%q or %q is accepted, and is not a number", s, other)
		}
		if got, want := number.Compare(second), x.Cmp(y); got != want {
			t.Errorf("%q compares with %q as %d, want %d", s, other, got, want)
		}
	})
}

func TestNumbersBeyondDecimals(t *testing.T) {
	for s, want := range map[string]bool{"1e9999": true, "1e10000": false, "1e-10000": false, strings.Repeat("9", 5000): true, "01": false, "1.": false, "": false} {
		if got := literal.IsDecimal(s); got != want {
			t.Errorf("IsDecimal(%.20q) = %t", s, got)
		}
	}
	for s, want := range map[string]bool{"1e1000000": true, "1e1000001": false, "1e99999999999999999999": false, "1x": false} {
		if _, got := literal.ParseNumber(s); got != want {
			t.Errorf("ParseNumber(%q) = %t", s, got)
		}
	}
}
