package normal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/normal"
)

func TestObject(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"compact", " { \"a\" : [ 1 , 2 ] ,\n\t\"b\" : { } , \"c\":[ ] } ", `{"a":[1,2],"b":{},"c":[]}`},
		{"member order kept", `{"b":1,"a":2}`, `{"b":1,"a":2}`},
		{"escapes that are needed", `{"a":"\u0001\n\"\\"}`, `{"a":"\u0001\n\"\\"}`},
		{"escapes that are not", `{"\u0061":"\u00e9\/\u003c\ud83d\ude00"}`, `{"a":"é/<😀"}`},
		{"no escaping of HTML", `{"a":"<b>&"}`, `{"a":"<b>&"}`},
		{"literals", `{"a":true,"b":false,"c":null}`, `{"a":true,"b":false,"c":null}`},
		{"integers", `{"a":1.0,"b":1e2,"c":-0,"d":-0.0,"e":0e5,"f":9223372036854775807}`, `{"a":1,"b":100,"c":0,"d":0,"e":0,"f":9223372036854775807}`},
		{"least int64", `{"a":-9223372036854775808,"b":9223372036854775808}`, `{"a":-9223372036854775808,"b":9223372036854775808}`},
		{"fractions", `{"a":1.50,"b":15e-1,"c":0.1,"d":0.0000001,"e":100E-3}`, `{"a":1.5,"b":1.5,"c":0.1,"d":1e-7,"e":0.1}`},
		{"large", `{"a":1e21,"b":1000000000000000000000000,"c":1.5e300}`, `{"a":1e+21,"b":1e+24,"c":1.5e+300}`},
		{"more digits than a float64", `{"a":0.1000000000000000055511151231257827,"b":123456789012345678901234567891}`, `{"a":0.1000000000000000055511151231257827,"b":123456789012345678901234567891}`},
		{"no shortest text of a float64", `{"a":0.123456789012345670,"b":1.2345678901234567e-1,"c":72057594037927.9360,"d":12.34567890123456e1,"e":9e308,"f":10e307}`, `{"a":0.123456789012345670,"b":1.2345678901234567e-1,"c":72057594037927.9360,"d":123.4567890123456,"e":9e308,"f":1e+308}`},
		{"near 0", `{"a":2e-324,"b":50e-325,"c":0.00001e-303,"d":1.2345678901234567e-310}`, `{"a":2e-324,"b":5e-324,"c":1e-308,"d":1.2345678901234567e-310}`},
		{"beyond float64", `{"a":1e999,"b":1e-999,"c":1e99999999999}`, `{"a":1e999,"b":1e-999,"c":1e99999999999}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := normal.Object([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Fatal(diff)
			}
			again, err := normal.Object(got)
			if err != nil || string(again) != string(got) {
				t.Fatalf("not idempotent: %s, %v", again, err)
			}
		})
	}
}

func TestObjectRefuses(t *testing.T) {
	many := func(n int, dup string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := n; i > 0; i-- {
			b.WriteString(`"m` + strings.Repeat("x", i) + `":1,`)
		}
		return b.String() + dup + `}`
	}
	tests := []struct{ name, in, want string }{
		{"nothing", ``, "byte 0: unexpected EOF"},
		{"not an object", `[1]`, "byte 0: a document is a JSON object"},
		{"cut off", `{"a":1`, "byte 6: unexpected EOF"},
		{"cut off in a string", `{"a":"b`, "byte 7: unexpected EOF"},
		{"more behind", `{} {}`, "byte 3: invalid character '{' after top-level value"},
		{"trailing comma", `{"a":[1,]}`, "byte 8: invalid character ']' at start of value"},
		{"duplicate", `{"a":1,"b":2,"a":3}`, `byte 13: the member "a" is there twice`},
		{"duplicate through an escape", `{"a":1,"\u0061":3}`, `byte 7: the member "a" is there twice`},
		{"duplicate among many", many(60, `"mxx":2`), `is there twice`},
		{"nested duplicate", `{"o":[{"a":1,"a":1}]}`, `byte 13: the member "a" is there twice`},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", "byte 6: invalid UTF-8"},
		{"invalid UTF-8 with an escape", "{\"a\":\"\\n\xff\"}", "byte 8: invalid UTF-8"},
		{"control character", "{\"a\":\"\n\"}", "byte 6: invalid character"},
		{"lone surrogate", `{"a":"\ud800x"}`, "invalid surrogate pair"},
		{"swapped surrogates", `{"a":"\ude00\ud83d"}`, "invalid surrogate pair"},
		{"unknown escape", `{"a":"\x"}`, "byte 6: invalid escape sequence"},
		{"leading zero", `{"a":01}`, "byte 6: invalid character '1'"},
		{"no digit", `{"a":-}`, "byte 6: invalid character '}' in number"},
		{"no exponent", `{"a":1e}`, "byte 7: invalid character '}' in number"},
		{"not JSON", `{"a":NaN}`, "byte 5: invalid character 'N'"},
		{"too deep", `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "nested more than 500 deep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := normal.Object([]byte(tt.in))
			var syntax *normal.SyntaxError
			if !errors.As(err, &syntax) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestEqualAndChanged(t *testing.T) {
	tests := []struct {
		name, a, b string
		want       []string
	}{
		{"same", `{"a":1}`, `{"a":1}`, nil},
		{"order", `{"a":1,"b":{"x":1,"y":[{"p":1,"q":2}]}}`, `{"b":{"y":[{"q":2,"p":1}],"x":1},"a":1}`, nil},
		{"list order matters", `{"a":[1,2]}`, `{"a":[2,1]}`, []string{"a"}},
		{"null is not absent", `{"a":null}`, `{}`, []string{"a"}},
		{"several", `{"c":1,"a":1,"b":1}`, `{"b":2,"d":1,"c":1}`, []string{"a", "b", "d"}},
		{"same names", `{"z":1,"a":1}`, `{"z":2,"a":2}`, []string{"a", "z"}},
		{"string is not number", `{"a":"1"}`, `{"a":111}`, []string{"a"}},
		{"from nothing", ``, `{"b":1,"a":1}`, []string{"a", "b"}},
		{"to nothing", `{"b":1,"a":1}`, ``, []string{"a", "b"}},
		{"another number of members", `{"a":1,"b":2}`, `{"aaa":12345}`, []string{"a", "aaa", "b"}},
		{"the value begins alike", `{"a":1,"b":1}`, `{"a":12,"b":1}`, []string{"a"}},
		{"one member more", `{"a":1}`, `{"a":1,"b":1}`, []string{"b"}},
		{"one member less", `{"a":1,"b":1}`, `{"a":1}`, []string{"b"}},
		{"a member amid others", `{"a":1,"c":[1,{"x":2}]}`, `{"a":1,"b":{},"c":[1,{"x":2}]}`, []string{"b"}},
		{"the first and the last", `{"a":"x","b":[],"c":{"y":1}}`, `{"a":"xx","b":[],"c":{"y":12}}`, []string{"a", "c"}},
		{"escaped name", `{"a":1,"\"":1}`, `{"a":1,"\"":2}`, []string{`"`}},
		{"swapped values", `{"a":{"x":1,"y":2}}`, `{"a":{"x":2,"y":1}}`, []string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, normal.Changed([]byte(tt.a), []byte(tt.b))); diff != "" {
				t.Error(diff)
			}
			if tt.a != "" && tt.b != "" && normal.Equal([]byte(tt.a), []byte(tt.b)) != (tt.want == nil) {
				t.Error("Equal and Changed disagree")
			}
		})
	}
}

// The work does not grow with the depth times the size: what lies deep is looked at as text.
func TestEqualOfDeepValues(t *testing.T) {
	nested := func(depth int, inner string) []byte {
		return []byte(strings.Repeat(`{"a":`, depth) + inner + strings.Repeat("}", depth))
	}
	const value = `{"x":[1,{"p":{},"q":[]}],"y":2}`
	for other, equal := range map[string]bool{
		value:                             true,
		`{"y":2,"x":[1,{"q":[],"p":{}}]}`: true,
		`{"y":2,"x":[{"q":[],"p":{}},1]}`: false,
		`{"x":2,"y":[1,{"p":{},"q":[]}]}`: false,
		`{"x":[1,{"p":[],"q":{}}],"y":2}`: false,
		`{"x":[1,{"p":{},"q":2}],"y":[]}`: false,
	} {
		for _, depth := range []int{0, normal.MaxNesting, normal.MaxNesting + 1, 100} {
			if normal.Equal(nested(depth, value), nested(depth, other)) != equal {
				t.Errorf("%s and %s, %d deep: not %v", value, other, depth, equal)
			}
		}
	}
	for _, damaged := range []string{`{`, `[`, `{"a`, `{"a"`, `{"a":`, `[1`, `[1,`, `["`, `{"a":[{`, ``, `}`, `,`, `[,,]`} {
		normal.Hash([]byte(damaged)) // ends
	}
	// The time of 480 levels is about that of two.
	fastest := func(depth int) time.Duration {
		list := "[" + strings.Repeat(`{"":{"":{"":0}}},`, 20_000)
		a, b := nested(depth, list+"1]"), nested(depth, list+"2]")
		least := time.Hour
		for range 5 {
			began := time.Now()
			if normal.Equal(a, b) {
				t.Fatal("equal")
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	if shallow, deep := fastest(2), fastest(480); deep > 4*shallow {
		t.Errorf("2 levels take %v, 480 take %v", shallow, deep)
	}
}

// Large objects are told apart without a list of their members.
func TestEqualOfLargeObjects(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	object := func(members []string) []byte { return []byte("{" + strings.Join(members, ",") + "}") }
	var members []string
	for i := range 2000 {
		members = append(members, fmt.Sprintf(`"m%d":%d`, i, 1000+i), fmt.Sprintf(`"o%d":{"a":%d,"b":[]}`, i, 1000+i))
	}
	was := object(members)
	turned := slices.Clone(members)
	for i := 1; i < len(turned); i += 2 {
		turned[i] = fmt.Sprintf(`"o%d":{"b":[],"a":%d}`, i/2, 1000+i/2)
	}
	r.Shuffle(len(turned), func(i, j int) { turned[i], turned[j] = turned[j], turned[i] })
	if !normal.Equal(was, object(turned)) {
		t.Error("another order makes another object")
	}
	for _, i := range []int{0, 1, 2000, 3999} {
		for _, change := range []func(string) string{
			func(m string) string { return strings.Replace(m, ":1", ":2", 1) },
			func(m string) string { return strings.NewReplacer(`"m`, `"n`, `"o`, `"p`).Replace(m) },
			func(m string) string { return strings.Replace(m, `{"a":1`, `{"a":3`, 1) },
		} {
			other := slices.Clone(turned)
			if other[i] = change(other[i]); other[i] == turned[i] {
				continue
			}
			is := object(other)
			if normal.Equal(was, is) {
				t.Errorf("%s is as %s", other[i], turned[i])
			}
			if n := testing.AllocsPerRun(3, func() { normal.Equal(was, is) }); n > 0 && !strings.Contains(other[i], "{") {
				t.Errorf("%s: %v allocations", other[i], n)
			}
		}
	}
}

// What Changed says does not depend on the order of members.
func TestChangedInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	values := []string{"1", "12", "null", `"x"`, `"x\\"`, `""`, "{}", "[]", `{"a":1}`, `{"a":1,"b":[1,2]}`, `[1,{"a":1}]`, `"{\"a\":1}"`}
	object := func(members []string) []byte { return []byte("{" + strings.Join(members, ",") + "}") }
	for range 20_000 {
		var before, after []string
		for _, name := range []string{"a", "b", `a\"b`, "ab", "ü"}[:r.IntN(6)] {
			value := values[r.IntN(len(values))]
			if r.IntN(8) > 0 {
				before = append(before, fmt.Sprintf(`"%s":%s`, name, value))
			}
			if r.IntN(2) == 0 {
				value = values[r.IntN(len(values))]
			}
			if r.IntN(8) > 0 {
				after = append(after, fmt.Sprintf(`"%s":%s`, name, value))
			}
		}
		was, is := object(before), object(after)
		want := normal.Changed(was, is)
		r.Shuffle(len(before), func(i, j int) { before[i], before[j] = before[j], before[i] })
		r.Shuffle(len(after), func(i, j int) { after[i], after[j] = after[j], after[i] })
		if diff := cmp.Diff(want, normal.Changed(object(before), object(after))); diff != "" {
			t.Fatalf("%s and %s, in another order (-want +got):\n%s", was, is, diff)
		}
		slices.Reverse(before)
		if got := normal.Changed(is, was); !slices.Equal(got, want) {
			t.Fatalf("%s and %s differ in %q, the other way round in %q", was, is, want, got)
		}
	}
}

func FuzzObject(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true,{"b":1e5}]}`, `{"\ud83d\ude00":"\u0000"}`, `{`, `{"a":-0}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := normal.Object(in)
		if err != nil {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q, which is not JSON", in, out)
		}
		again, err := normal.Object(out)
		if err != nil || string(again) != string(out) {
			t.Fatalf("not idempotent: %q, then %q, %v", out, again, err)
		}
	})
}

func BenchmarkObject(b *testing.B) {
	doc := []byte(`{"name":"Zero-TOTP","website_url":"https://zero-totp.com","description":"Complete, reliable, secure and zero-trust webapp based on zero-knowledge encryption to store your TOTP codes.","licenses":["GPL-3.0"],"platforms":["Docker"],"tags":["Miscellaneous"],"stargazers_count":27,"updated_at":"2026-08-21","archived":false,"current_release":{"tag":"v2.0.3","published_at":"2026-08-06"},"commit_history":{"2025-09":34,"2025-10":28,"2025-11":29,"2025-12":50,"2026-01":20,"2026-02":18,"2026-03":6,"2026-04":64,"2026-05":109,"2026-06":71,"2026-07":60,"2026-08":48}}`)
	other := []byte(strings.Replace(string(doc), `:27`, `:28`, 1))
	b.Run("normal", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		for b.Loop() {
			if _, err := normal.Object(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("changed", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		for b.Loop() {
			if len(normal.Changed(doc, other)) != 1 {
				b.Fatal("one member differs")
			}
		}
	})
}
