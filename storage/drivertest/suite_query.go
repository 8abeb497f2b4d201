package drivertest

import (
	"fmt"
	"slices"
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

func (s *suite) pageTests() []test {
	return []test{
		{"Order", s.testOrder},
		{"BetweenAfterAndBefore", s.testBetween},
		{"NoMoreBytesThanWanted", s.testBytes},
	}
}

func (s *suite) testOrder(t *testing.T) {
	f := s.fixture(t)
	for key, data := range map[string]string{
		"a": `{"n":2,"s":"b"}`, "b": `{"n":10,"s":"B"}`, "c": `{"n":null,"s":"a"}`, "d": `{"s":"é"}`, "e": `{"n":"3","s":"b"}`, "f": `{"n":-1}`, "g": `{"n":2,"s":""}`,
	} {
		f.put(key, data)
	}
	n, str := intField("n"), stringField("s")
	number := driver.Field{Meta: driver.MetaNumber, Kind: driver.KindInt}
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	for _, test := range []struct {
		order []driver.Order
		want  string
	}{
		{nil, "[a b c d e f g]"},
		{[]driver.Order{{Field: n}}, "[c d e f a g b]"},
		{[]driver.Order{{Field: n, Desc: true}}, "[b a g f c d e]"},
		{[]driver.Order{{Field: str}}, "[f g b c a e d]"},
		{[]driver.Order{{Field: str, Desc: true}}, "[d a e c b g f]"},
		{[]driver.Order{{Field: n}, {Field: str, Desc: true}}, "[d e c f a g b]"},
		{[]driver.Order{{Field: key, Desc: true}}, "[g f e d c b a]"},
		{[]driver.Order{{Field: number}, {Field: key, Desc: true}, {Field: n}}, "[g f e d c b a]"},
		{[]driver.Order{{Field: n}, {Field: n, Desc: true}}, "[c d e f a g b]"},
		{[]driver.Order{{Field: intField("missing")}}, "[a b c d e f g]"},
	} {
		if got := fmt.Sprint(f.keys(&driver.Query{At: driver.Forever, Order: test.order})); got != test.want {
			t.Errorf("order %+v: %s, want %s", test.order, got, test.want)
		}
	}
}

func (s *suite) testBetween(t *testing.T) {
	f := s.fixture(t)
	for i := range 9 {
		f.put(fmt.Sprintf("k%d", i), fmt.Sprintf(`{"n":%d}`, i/3))
	}
	f.put("none", `{}`)
	order := []driver.Order{{Field: intField("n"), Desc: true}}
	at := func(n any, key string) *driver.Position { return &driver.Position{Values: []driver.Value{n}, Key: key} }
	for _, test := range []struct {
		after, before *driver.Position
		limit         int
		backward      bool
		want          string
	}{
		{nil, nil, 0, false, "[k6 k7 k8 k3 k4 k5 k0 k1 k2 none]"},
		{nil, nil, 3, true, "[k1 k2 none]"},
		{at(int64(2), "k7"), nil, 3, false, "[k8 k3 k4]"},
		{at(int64(2), "k7"), at(int64(1), "k5"), 0, false, "[k8 k3 k4]"},
		{at(int64(2), "k7"), at(int64(1), "k5"), 2, false, "[k8 k3]"},
		{at(int64(2), "k7"), at(int64(1), "k5"), 2, true, "[k3 k4]"},
		{nil, at(int64(2), "k6"), 5, true, "[]"},
		{at(nil, "none"), nil, 5, false, "[]"},
		{at(nil, ""), nil, 5, false, "[none]"},
		{at(int64(0), "k2"), nil, 5, false, "[none]"},
		{nil, at(nil, "none"), 2, true, "[k1 k2]"},
		{at(int64(9), "not there"), at(int64(2), "zzz"), 0, false, "[k6 k7 k8]"},
		{at(int64(1), "k5"), at(int64(2), "k7"), 0, false, "[]"},
	} {
		q := &driver.Query{At: driver.Forever, Order: order, After: test.after, Before: test.before, Limit: test.limit, Backward: test.backward}
		if got := fmt.Sprint(f.keys(q)); got != test.want {
			t.Errorf("after %s, before %s, limit %d, backward %t: %s, want %s", showPosition(test.after), showPosition(test.before), test.limit, test.backward, got, test.want)
		}
		if got := f.count(q); got != 10 {
			t.Errorf("Count with a page: %d, want all 10", got)
		}
	}
}

// testBytes: of a page that the caller refuses for its size, the beginning is enough, in
// the direction that it is read in; but enough to be refused.
func (s *suite) testBytes(t *testing.T) {
	f := s.fixture(t)
	for i := range 9 {
		w := f.next(fmt.Sprint("k", i))
		w.Data, w.Message = fmt.Appendf(nil, `{"n":%d,"s":"some text"}`, (i*5)%9), "why, in so many words"
		f.commit(w)
	}
	sizeOf := func(vs []*driver.Version) (size int64) {
		for _, v := range vs {
			size += int64(v.Size())
		}
		return size
	}
	for _, order := range [][]driver.Order{nil, {{Field: intField("n")}}, {{Field: stringField("s"), Desc: true}, {Field: intField("n"), Desc: true}}} {
		for _, backward := range []bool{false, true} {
			q := driver.Query{At: driver.Forever, Order: order, Limit: 7, Backward: backward}
			all := f.query(&q)
			for bytes := int64(1); bytes <= sizeOf(all)+1; bytes += 10 {
				q.Bytes = bytes
				some := f.query(&q)
				left, want := len(all)-len(some), keysOf(all)
				if left < 0 || left > 0 && sizeOf(some) <= bytes {
					t.Fatalf("%d bytes wanted: %d of %d versions, with %d bytes", bytes, len(some), len(all), sizeOf(some))
				}
				if want = want[:len(some)]; backward {
					want = keysOf(all)[left:]
				}
				if got := keysOf(some); !slices.Equal(got, want) {
					t.Fatalf("order %+v, backward %v, %d bytes wanted: %v, want %v", order, backward, bytes, got, want)
				}
			}
		}
	}
}
