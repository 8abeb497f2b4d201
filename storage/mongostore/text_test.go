package mongostore

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

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
