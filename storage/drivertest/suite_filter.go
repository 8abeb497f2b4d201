package drivertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) filterTests() []test {
	return []test{
		{"Table", s.testFilterTable},
		{"RandomFiltersAgainstTheReference", s.testRandomFilters},
	}
}

// The meaning of each condition, in small.
func (s *suite) testFilterTable(t *testing.T) {
	f := s.fixture(t)
	for key, data := range map[string]string{
		"null":    `{"n":null,"s":null,"tags":null,"items":null}`,
		"missing": `{}`,
		"one":     `{"n":1,"s":"One 100%","tags":["a"],"items":[{"n":1,"s":"x"}]}`,
		"two":     `{"n":2,"s":"two_é","tags":["a","B",null,3],"items":[{"n":1,"s":"y"},{"n":2,"s":"x"}]}`,
		"wrong":   `{"n":"1","s":5,"tags":"a","items":{"n":1}}`,
		"empty":   `{"n":0,"s":"","tags":[],"items":[]}`,
	} {
		f.put(key, data)
	}
	n, str, tags := intField("n"), stringField("s"), field(0, "tags")
	compare := func(op driver.CompareOp, v int64) driver.Filter { return driver.Compare{Field: n, Op: op, Value: v} }
	text := func(op driver.TextOp, v string, fold bool) driver.Filter {
		return driver.Text{Field: str, Op: op, Value: v, Fold: fold}
	}
	item := func(f driver.Filter) driver.Filter { return driver.Any{Field: field(0, "items"), Filter: f} }
	all := "[empty missing null one two wrong]"
	for _, test := range []struct {
		filter driver.Filter
		want   string
	}{
		{nil, all},
		{driver.And{}, all},
		{driver.Or{}, "[]"},
		{driver.Not{Filter: driver.Or{}}, all},
		{compare(driver.Eq, 1), "[one]"},
		{driver.Not{Filter: compare(driver.Eq, 1)}, "[empty missing null two wrong]"},
		{compare(driver.Lt, 2), "[empty one]"},
		{compare(driver.Le, 2), "[empty one two]"},
		{compare(driver.Gt, 0), "[one two]"},
		{compare(driver.Ge, 0), "[empty one two]"},
		{driver.Not{Filter: compare(driver.Ge, 0)}, "[missing null wrong]"},
		{driver.In{Field: n}, "[]"},
		{driver.Not{Filter: driver.In{Field: n}}, all},
		{driver.In{Field: n, Values: []driver.Value{int64(2), int64(7), int64(1), int64(2)}}, "[one two]"},
		{driver.Present{Field: n}, "[empty one two]"},
		{driver.Not{Filter: driver.Present{Field: n}}, "[missing null wrong]"},
		{driver.Present{Field: field(0, "n")}, "[empty one two wrong]"},
		{driver.Not{Filter: driver.Present{Field: field(0, "n")}}, "[missing null]"},
		{driver.Present{Field: str}, "[empty one two]"},
		{driver.Present{Field: tags}, "[empty one two wrong]"},
		{driver.Present{Field: field(driver.KindObject, "items")}, "[wrong]"},
		{driver.Present{Field: field(driver.KindObject, "items", "n")}, "[]"},
		{driver.Present{Field: field(driver.KindInt, "items", "n")}, "[wrong]"},
		{item(driver.Present{Field: driver.Field{Kind: driver.KindObject}}), "[one two]"},
		{eq(field(driver.KindString, "n"), "1"), "[wrong]"},
		{text(driver.Contains, "0%", false), "[one]"},
		{text(driver.Contains, "O_", false), "[]"},
		{text(driver.Contains, "", false), "[empty one two]"},
		{text(driver.HasPrefix, "one", false), "[]"},
		{text(driver.HasPrefix, "oNE", true), "[one]"},
		{text(driver.HasSuffix, "É", false), "[]"},
		{text(driver.HasSuffix, "É", true), "[two]"},
		{text(driver.Equals, "TWO_É", true), "[two]"},
		{text(driver.Equals, "two", true), "[]"},
		{driver.Any{Field: tags}, "[one two]"},
		{driver.Not{Filter: driver.Any{Field: tags}}, "[empty missing null wrong]"},
		{driver.Any{Field: tags, Filter: eq(stringField(), "a")}, "[one two]"},
		{driver.Any{Field: tags, Filter: driver.Not{Filter: eq(stringField(), "a")}}, "[two]"},
		{driver.Any{Field: tags, Filter: driver.Not{Filter: driver.Present{}}}, "[two]"},
		{driver.Any{Field: tags, Filter: driver.Present{Field: intField()}}, "[two]"},
		{driver.Not{Filter: driver.Any{Field: tags, Filter: driver.Not{Filter: driver.Present{Field: stringField()}}}}, "[empty missing null one wrong]"},
		{driver.Any{Field: tags, Filter: driver.Present{Field: driver.Field{Kind: driver.KindObject}}}, "[]"},
		{driver.Any{Field: tags, Filter: eq(intField(), int64(3))}, "[two]"},
		{driver.Any{Field: tags, Filter: driver.Or{}}, "[]"},
		{driver.Any{Field: tags, Filter: driver.Text{Field: stringField(), Op: driver.Equals, Value: "b", Fold: true}}, "[two]"},
		{item(driver.And{eq(intField("n"), int64(1)), eq(stringField("s"), "x")}), "[one]"},
		{driver.And{item(eq(intField("n"), int64(1))), item(eq(stringField("s"), "x"))}, "[one two]"},
		{eq(intField("items", "n"), int64(1)), "[wrong]"},
		{eq(driver.Field{Meta: driver.MetaAuthor, Kind: driver.KindString}, "ann"), all},
		{driver.Compare{Field: driver.Field{Meta: driver.MetaNumber, Kind: driver.KindInt}, Op: driver.Gt, Value: int64(1)}, "[]"},
	} {
		q := &driver.Query{At: driver.Forever, Filter: test.filter}
		if got := fmt.Sprint(f.keys(q)); got != test.want || f.count(q) != int64(len(f.keys(q))) {
			t.Errorf("%#v: %s (count %d), want %s", test.filter, got, f.count(q), test.want)
		}
	}
}

// testRandomFilters puts random documents in an engine and in the model, changes
// some, and asks both random questions about the present and the past, with indexes and without.
func (s *suite) testRandomFilters(t *testing.T) {
	for round := range s.rounds(4) {
		t.Run(fmt.Sprintf("seed %d.%d", s.seed, round), func(t *testing.T) {
			declared := driver.Collection{Name: collection}
			if round%2 == 0 {
				declared.Indexes = indexes(shape())
			}
			p := s.pair(t, newGenerator(s.seed, round), declared)
			var vs []driver.Version
			at := driver.Instant(1_000_000)
			for i := range 120 {
				at += driver.Instant(p.gen.IntN(2) * 1000)
				// The first documents get most of the versions.
				key := fmt.Sprintf("k%d", i)
				if i >= 60 {
					key = fmt.Sprintf("k%d", p.gen.IntN(60))
					at++
				}
				vs = append(vs, p.version(key, at))
			}
			p.load(vs)
			p.clock.move(time.Hour)
			for range s.tries(350) {
				p.compareQuery(p.randomQuery())
			}
		})
	}
}
