package mongostore

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// TestStringOrder holds encoded strings against both orders that servers have.
func TestStringOrder(t *testing.T) {
	texts := []string{"", "a", "ab", "\x00", "z", "é", "日本", "힣", "\ud7fb", "\ue000", "\ufeff", "\uffff", "\U00010000", "a\uffff", "a\U00010000b", "\U0010ffff"}
	slices.Sort(texts)
	utf16Order := func(s string) []rune { // every encoded character is one unit
		for _, r := range s {
			if r > 0xffff {
				t.Errorf("%q has a character of two units", s)
			}
		}
		return []rune(s)
	}
	for i, a := range texts {
		if got := decodeString(encodeString(a)); got != a {
			t.Errorf("%q is decoded as %q", a, got)
		}
		if strings.Compare(encodeString(a), afterAll) >= 0 {
			t.Errorf("%q is not before what is after all", a)
		}
		for _, b := range texts[i+1:] {
			x, y := encodeString(a), encodeString(b)
			if x >= y || slices.Compare(utf16Order(x), utf16Order(y)) >= 0 {
				t.Errorf("%q and %q are encoded in another order", a, b)
			}
			if strings.Contains(b, a) != strings.Contains(y, x) {
				t.Errorf("%q in %q: encoded, it is not the same", a, b)
			}
		}
	}
}

func TestNames(t *testing.T) {
	names := []string{"", "%", "a.b", "a%2Eb", "$", "$a", "a$", "0", "10", "a0", "%30", "\x00", "_id", "é", "a b", "system", "%73ystem"}
	for _, encode := range []func(string) string{memberName, collectionName} {
		seen := make(map[string]string)
		for _, name := range names {
			e := encode(name)
			if before, twice := seen[e]; twice {
				t.Errorf("%q and %q are both encoded as %q", before, name, e)
			}
			seen[e] = name
			if strings.ContainsAny(e, ".$\x00") {
				t.Errorf("%q is encoded as %q", name, e)
			}
		}
	}
	if got := memberName("website_url"); got != "website_url" {
		t.Errorf("an ordinary name is encoded as %q", got)
	}
}

// TestDecimalOrder lists numbers in ascending order, some of them twice.
func TestDecimalOrder(t *testing.T) {
	ascending := [][]string{
		{"-1e9999"},
		{"-1e100"},
		{"-12345678901234567890.2"},
		{"-12345678901234567890.1"},
		{"-10", "-1e1"},
		{"-1.52"},
		{"-1.5", "-1.50"},
		{"-1"},
		{"-0.1"},
		{"-1e-9999"},
		{"0", "-0", "0.000", "0e5"},
		{"1e-9999"},
		{"0.009"},
		{"0.01", "1E-2", "0.010"},
		{"1", "1.0", "10e-1"},
		{"1.05"},
		{"1.5"},
		{"9.99"},
		{"10", "1e+1"},
		{"123456789012345678901234567890"},
		{"123456789012345678901234567891"},
		{"1e9999"},
	}
	last := ""
	for _, equal := range ascending {
		first, ok := decimal(equal[0])
		if !ok || first <= last {
			t.Errorf("%s is %q, %t; what is before it is %q", equal[0], first, ok, last)
		}
		for _, s := range equal[1:] {
			if e, ok := decimal(s); !ok || e != first {
				t.Errorf("%s is %q, %t; %s is %q", s, e, ok, equal[0], first)
			}
		}
		last = first
	}
	for _, s := range []string{"", "-", "+1", "1.", ".5", "01", "1e", "1e+", "1e10000", "1e-10000", " 1", "1 ", "NaN", "0x1", "1_0", "1,5", "1e1.5"} {
		if e, ok := decimal(s); ok {
			t.Errorf("%q is taken for a decimal: %q", s, e)
		}
	}
}

func TestFloatOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	floats := []float64{math.Inf(-1), -math.MaxFloat64, -1, -math.SmallestNonzeroFloat64, 0, math.SmallestNonzeroFloat64, 1, 1 << 63, 1e21, math.MaxFloat64}
	for range 1000 {
		floats = append(floats, math.Float64frombits(random.Uint64()))
	}
	floats = slices.DeleteFunc(floats, math.IsNaN)
	slices.Sort(floats)
	for i := 1; i < len(floats); i++ {
		if a, b := ordered(floats[i-1]), ordered(floats[i]); a > b || (a == b) != (floats[i-1] == floats[i]) {
			t.Errorf("%g and %g become %d and %d", floats[i-1], floats[i], a, b)
		}
	}
	if ordered(math.Copysign(0, -1)) != ordered(0) {
		t.Error("a negative zero is another value than zero")
	}
}

// A text whose pattern MongoDB would not take is refused before it is sent, wherever
// it is in a filter, with what to do; one that it takes is not.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{})
	name := driver.Field{Path: []string{"name"}, Kind: driver.KindString}
	for _, c := range []struct {
		name string
		text driver.Text
		ok   bool
	}{
		{"in any case, short enough", driver.Text{Op: driver.Contains, Value: strings.Repeat("a", maxPattern/4), Fold: true}, true},
		{"in any case, too long", driver.Text{Op: driver.Contains, Value: strings.Repeat("a", maxPattern/4+1), Fold: true}, false},
		{"the whole in any case", driver.Text{Op: driver.Equals, Value: strings.Repeat("é", 10_000), Fold: true}, false},
		{"a beginning in any case", driver.Text{Op: driver.HasPrefix, Value: strings.Repeat("😀", 10_000), Fold: true}, false},
		{"an end", driver.Text{Op: driver.HasSuffix, Value: strings.Repeat("-", maxPattern/2)}, false},
		{"an end, short enough", driver.Text{Op: driver.HasSuffix, Value: strings.Repeat("-", maxPattern/2-1)}, true},
		{"a beginning, however long", driver.Text{Op: driver.HasPrefix, Value: strings.Repeat("a", 100_000)}, true},
		{"the whole, however long", driver.Text{Op: driver.Equals, Value: strings.Repeat("a", 100_000)}, true},
	} {
		c.text.Field = name
		inside := c.text
		inside.Field = driver.Field{Kind: driver.KindString}
		for _, filter := range []driver.Filter{
			c.text,
			driver.Not{Filter: driver.Or{c.text, driver.Present{Field: name}}},
			driver.Any{Field: driver.Field{Path: []string{"tags"}}, Filter: inside},
		} {
			q := &driver.Query{Collection: "things", At: driver.Forever, Filter: filter}
			_, err := s.Query(t.Context(), q)
			_, counting := s.Count(t.Context(), q)
			for _, err := range []error{err, counting} {
				switch {
				case c.ok && err != nil:
					t.Errorf("%s: %v", c.name, err)
				case !c.ok && (driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), "too long for MongoDB") || len(err.Error()) > 300):
					t.Errorf("%s: %.300v (%q)", c.name, err, driver.CodeOf(err))
				}
			}
		}
	}
}

// No byte of a text becomes more of a pattern than is assumed where it is not measured.
func TestLongestFolded(t *testing.T) {
	t.Parallel()
	check := func(text string) {
		for _, fold := range []bool{false, true} {
			if n := len(pattern(driver.Text{Op: driver.Contains, Value: text, Fold: fold})); n > longestFolded*len(text) {
				t.Fatalf("%q becomes %d bytes", text, n)
			}
		}
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if utf8.ValidRune(r) {
			check(string(r))
		}
	}
	for b := range 1 << 8 { // what text is cut to that is cut in the middle of a character
		check(string([]byte{byte(b)}))
	}
}
