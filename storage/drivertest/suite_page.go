package drivertest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/asof/asof/storage/driver"
)

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
