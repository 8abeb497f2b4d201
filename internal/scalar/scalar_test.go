package scalar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

func written(m graphql.Marshaler) string {
	var b bytes.Buffer
	m.MarshalGQL(&b)
	return b.String()
}

// readers call each scalar's reader.
func readers() map[string]func(any) (any, error) {
	return map[string]func(any) (any, error){
		"String":   func(v any) (any, error) { return scalar.UnmarshalString(v) },
		"ID":       func(v any) (any, error) { return scalar.UnmarshalID(v) },
		"Int":      func(v any) (any, error) { return scalar.UnmarshalInt(v) },
		"Float":    func(v any) (any, error) { return scalar.UnmarshalFloat(v) },
		"DateTime": func(v any) (any, error) { return scalar.UnmarshalDateTime(v) },
		"Date":     func(v any) (any, error) { return scalar.UnmarshalDate(v) },
		"Decimal":  func(v any) (any, error) { return scalar.UnmarshalDecimal(v) },
		"JSON":     func(v any) (any, error) { return scalar.UnmarshalJSON(v) },
	}
}

func TestUnmarshal(t *testing.T) {
	n := func(s string) json.Number { return json.Number(s) }
	tests := []struct {
		scalar string
		in     any
		want   any // or, as a string that begins with "!", the error
	}{
		{"String", "", ""},
		{"String", "zoë 💡", "zoë 💡"},
		{"String", int64(1), `!String cannot be 1; write it in quotes, as "text"`},
		{"String", n("1"), `!String cannot be 1; write it in quotes, as "text"`},
		{"String", true, `!String cannot be true; write it in quotes, as "text"`},
		{"String", nil, `!String cannot be null; write it in quotes, as "text"`},
		{"String", []any{"a"}, `!String cannot be a list; write it in quotes, as "text"`},

		{"ID", "vaultwarden", "vaultwarden"},
		{"ID", int64(-7), "-7"},
		{"ID", n("12345678901234567890123"), "12345678901234567890123"},
		{"ID", 1.5, `!ID cannot be 1.5; write it as a string, as "vaultwarden", or as an integer`},
		{"ID", n("1.0"), `!ID cannot be 1.0; write it as a string, as "vaultwarden", or as an integer`},
		{"ID", n("1e3"), `!ID cannot be 1e3; write it as a string, as "vaultwarden", or as an integer`},
		{"ID", false, `!ID cannot be false; write it as a string, as "vaultwarden", or as an integer`},

		{"Int", int64(42), 42},
		{"Int", n("-2147483648"), math.MinInt32},
		{"Int", n("2147483647"), math.MaxInt32},
		{"Int", n("2147483648"), "!Int cannot be 2147483648; it has 32 bits: -2147483648 to 2147483647"},
		{"Int", int64(-2147483649), "!Int cannot be -2147483649; it has 32 bits: -2147483648 to 2147483647"},
		{"Int", n("99999999999999999999"), "!Int cannot be 99999999999999999999; it has 32 bits: -2147483648 to 2147483647"},
		{"Int", n("1.5"), "!Int cannot be 1.5; write a whole number without quotes, as 42"},
		{"Int", n("1e3"), "!Int cannot be 1e3; write a whole number without quotes, as 42"},
		{"Int", "5", `!Int cannot be "5"; write a whole number without quotes, as 42`},
		{"Int", true, "!Int cannot be true; write a whole number without quotes, as 42"},
		{"Int", float64(7), 7},
		{"Int", 7.5, "!Int cannot be 7.5; write a whole number without quotes, as 42"},
		{"Int", math.NaN(), "!Int cannot be NaN; write a whole number without quotes, as 42"},
		{"Int", math.Inf(1), "!Int cannot be +Inf; write a whole number without quotes, as 42"},

		{"Float", 0.5, 0.5},
		{"Float", int64(3), 3.0},
		{"Float", n("1e-3"), 0.001},
		{"Float", n("1e999"), "!Float cannot be 1e999; the largest is about 1.8e308"},
		{"Float", math.Inf(-1), "!Float cannot be -Inf; write a number without quotes, as 0.5"},
		{"Float", "0.5", `!Float cannot be "0.5"; write a number without quotes, as 0.5`},

		{"DateTime", "1970-01-01T01:00:00.000001+01:00", driver.Instant(1)},
		{"DateTime", "1969-12-31T23:59:59.999999Z", driver.Instant(-1)},
		{"DateTime", int64(1700000000), `!DateTime cannot be 1700000000; write it as "2024-03-01T12:30:00Z"`},
		{
			"DateTime", "2024-03-01T12:30:00",
			`!DateTime cannot be "2024-03-01T12:30:00": the offset is missing; write it as "2024-03-01T12:30:00Z" or "2024-03-01T14:30:00.25+02:00"`,
		},

		{"Date", "2024-02-29", "2024-02-29"},
		{"Date", "2023-02-29", `!Date cannot be "2023-02-29": its day does not exist; write it as "2024-03-01"`},
		{"Date", n("20240101"), `!Date cannot be 20240101; write it as "2024-03-01"`},

		{"Decimal", "19.90", "19.90"},
		{"Decimal", n("19.900"), "19.900"},
		{"Decimal", int64(19), "19"},
		{"Decimal", 19.9, `!Decimal cannot be 19.9; write it in quotes, as "19.90", so that nothing is rounded`},
		{"Decimal", "19,90", `!Decimal cannot be "19,90": "," is not part of a number; write it as "19.90" or "-1.5e-7"`},

		{"JSON", nil, json.RawMessage("null")},
		{"JSON", map[string]any{"b": []any{n("1.50"), "x", nil}, "a": true}, json.RawMessage(`{"a":true,"b":[1.50,"x",null]}`)},
	}
	read := readers()
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s/%v", test.scalar, test.in), func(t *testing.T) {
			got, err := read[test.scalar](test.in)
			if s, ok := test.want.(string); ok && strings.HasPrefix(s, "!") {
				if err == nil || err.Error() != s[1:] {
					t.Errorf("got %v, error %q; want the error %q", got, err, s[1:])
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %#v, %v; want %#v", got, err, test.want)
			}
		})
	}
}

func TestMarshal(t *testing.T) {
	tests := []struct {
		name string
		m    graphql.Marshaler
		want string
	}{
		{"string", scalar.MarshalString("a \"b\"\n<c>"), `"a \"b\"\n<c>"`},
		{"id", scalar.MarshalID("7"), `"7"`},
		{"int", scalar.MarshalInt(math.MinInt32), "-2147483648"},
		{"int too large", scalar.MarshalInt(math.MaxInt32 + 1), "null"},
		{"int too small", scalar.MarshalInt(math.MinInt32 - 1), "null"},
		{"float", scalar.MarshalFloat(0.1), "0.1"},
		{"whole float", scalar.MarshalFloat(3), "3"},
		{"large float", scalar.MarshalFloat(1e21), "1e+21"},
		{"no number", scalar.MarshalFloat(math.NaN()), "null"},
		{"infinity", scalar.MarshalFloat(math.Inf(1)), "null"},
		{"moment", scalar.MarshalDateTime(1_709_296_200_250_000), `"2024-03-01T12:30:00.25Z"`},
		{"whole second", scalar.MarshalDateTime(0), `"1970-01-01T00:00:00Z"`},
		{"before the epoch", scalar.MarshalDateTime(-1), `"1969-12-31T23:59:59.999999Z"`},
		{"date", scalar.MarshalDate("2024-03-01"), `"2024-03-01"`},
		{"decimal", scalar.MarshalDecimal("1.50"), `"1.50"`},
		{"json", scalar.MarshalJSON(json.RawMessage(`{"a":1.50}`)), `{"a":1.50}`},
		{"no json", scalar.MarshalJSON(nil), "null"},
	}
	for _, test := range tests {
		if got := written(test.m); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestUnmarshalInput(t *testing.T) {
	if got, err := scalar.UnmarshalInput(map[string]any{"null": nil}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := scalar.UnmarshalInput("text"); err == nil {
		t.Error("a string is accepted as an input object")
	}
}

func FuzzInt(f *testing.F) {
	f.Add("42")
	f.Add("-2147483649")
	f.Add("1e9")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := scalar.UnmarshalInt(json.Number(s))
		if err != nil {
			return
		}
		if got := written(scalar.MarshalInt(n)); got == "null" {
			t.Errorf("Int %q is read as %d, which cannot be written", s, n)
		}
	})
}

func FuzzDateTime(f *testing.F) {
	f.Add("2024-03-01T14:30:00.25+02:00")
	f.Add("1900-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, s string) {
		i, err := scalar.UnmarshalDateTime(s)
		if err != nil {
			return
		}
		var back string
		if err := json.Unmarshal([]byte(written(scalar.MarshalDateTime(i))), &back); err != nil {
			t.Fatal(err)
		}
		if again, err := scalar.UnmarshalDateTime(back); err != nil || again != i {
			t.Errorf("%q is read as %d, written as %q, read as %d, %v", s, i, back, again, err)
		}
	})
}

// A long text is written in parts, and is the same.
func TestLongTexts(t *testing.T) {
	for _, unit := range []string{"a", "\"", "\x01", "é", "€", "😀", "a😀", "\xff", "\x80", "\xf0\x80", "aé€😀\\"} {
		for n := 4090; n < 4105; n++ {
			for _, text := range []string{strings.Repeat("a", n) + strings.Repeat(unit, 5_000), strings.Repeat(unit, n)} {
				var got strings.Builder
				scalar.MarshalString(text).MarshalGQL(&got)
				if want := string(rawjson.AppendString(nil, text)); got.String() != want {
					t.Fatalf("%d of %q: %d bytes, want %d", n, unit, got.Len(), len(want))
				}
			}
		}
	}
}
