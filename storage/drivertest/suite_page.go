package drivertest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) pageTests() []test {
	return []test{
		{"Order", s.testOrder},
		{"WalkingNeitherSkipsNorRepeats", s.testWalking},
		{"WalkingWhileOthersWrite", s.testWalkingWhileWriting},
		{"BetweenAfterAndBefore", s.testBetween},
		{"OnlySomeFields", s.testFields},
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

// walk reads all pages of a query in one direction and returns the keys in
// the query's order.
func walk(f *fixture, q driver.Query, size int, backward bool) []string {
	f.Helper()
	q.Limit, q.Backward = size, backward
	var keys []string
	for range 10_000 {
		vs := f.query(&q)
		if len(vs) == 0 {
			return keys
		}
		if backward {
			keys = append(keysOf(vs), keys...)
			q.Before = positionIn(q.Order, vs[0])
		} else {
			keys = append(keys, keysOf(vs)...)
			q.After = positionIn(q.Order, vs[len(vs)-1])
		}
	}
	f.Fatalf("the pages have no end; the first keys are %.300q", keys)
	return nil
}

// walkOrders are orders with many ties, nulls and values of other kinds.
func walkOrders() [][]driver.Order {
	n, tie, x := intField("n"), stringField("tie"), field(driver.KindFloat, "x")
	number := driver.Field{Meta: driver.MetaNumber, Kind: driver.KindInt}
	return [][]driver.Order{
		nil,
		{{Field: n}},
		{{Field: n, Desc: true}},
		{{Field: tie}},
		{{Field: tie, Desc: true}, {Field: n}},
		{{Field: tie}, {Field: n, Desc: true}, {Field: x}},
		{{Field: x, Desc: true}, {Field: tie, Desc: true}},
		{{Field: number, Desc: true}, {Field: n}},
		{{Field: driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, Desc: true}},
	}
}

func walkDocument(i int) string {
	n := []string{"null", "1", "2", "2", `"2"`, "9007199254740993"}[i%6]
	x := []string{"0.1", "null", "9007199254740993", "9007199254740992", "-1.5"}[i/3%5]
	tie := []string{`"same"`, `"same"`, `"same"`, "null", `"other"`}[i/2%5]
	if i%7 == 3 {
		return fmt.Sprintf(`{"tie":%s,"x":%s}`, tie, x)
	}
	return fmt.Sprintf(`{"n":%s,"tie":%s,"x":%s,"i":%d}`, n, tie, x, i)
}

func (s *suite) testWalking(t *testing.T) {
	f := s.fixture(t)
	var vs []driver.Version
	for i := range 90 {
		vs = append(vs, loaded(fmt.Sprintf("k%03d", (i*37)%90), driver.Instant(i+1), walkDocument(i)))
	}
	for i := range 30 {
		vs = append(vs, loaded(fmt.Sprintf("k%03d", i*3), driver.Instant(100+i), walkDocument(i+50)))
	}
	f.load(vs...)
	for _, at := range []driver.Instant{driver.Forever, 95, 60} {
		for _, order := range walkOrders() {
			for _, filter := range []driver.Filter{nil, driver.Not{Filter: eq(intField("n"), int64(1))}} {
				q := driver.Query{At: at, Order: order, Filter: filter}
				whole := f.keys(&q)
				for _, size := range []int{7, 1}[:s.tries(2)] {
					for _, backward := range []bool{false, true} {
						if got := walk(f, q, size, backward); !slices.Equal(got, whole) {
							t.Fatalf("at %d, order %+v, pages of %d, backward %t:\n%q, want\n%q", at, order, size, backward, got, whole)
						}
					}
				}
			}
		}
	}
}

// Pages that are pinned at the instant of the first are not disturbed by writes.
func (s *suite) testWalkingWhileWriting(t *testing.T) {
	f := s.fixture(t)
	const documents = 40
	for i := range documents {
		f.put(fmt.Sprintf("k%03d", i), walkDocument(i))
	}
	var done atomic.Bool
	parallel(3, func(i int) {
		if i < 2 {
			for n := 0; !done.Load(); n++ {
				key := fmt.Sprintf("k%03d", (n*2+i)%(documents*2))
				w := &driver.Write{ID: f.id(), Collection: collection, Key: key, Op: driver.OpUpdate, Data: []byte(walkDocument(n + 3))}
				vs, err := f.engine.Get(f.ctx, collection, []driver.Ref{{Key: key, At: driver.Forever}}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				w.Expected = numberOf(vs[0])
				if n%5 == 4 && vs[0] != nil && !vs[0].Deleted {
					w.Op, w.Deleted, w.Data = driver.OpDelete, true, nil
				}
				if _, err := driver.CommitOne(f.ctx, f.engine, w); err != nil {
					t.Error(err)
					return
				}
				f.clock.move(time.Microsecond)
			}
			return
		}
		defer done.Store(true)
		for _, order := range walkOrders() {
			at, err := f.engine.Now(f.ctx)
			if err != nil {
				t.Error(err)
				return
			}
			whole, ok := f.tryWalk(driver.Query{Collection: collection, At: at, Order: order}, 0, false)
			for _, backward := range []bool{false, true} {
				got, pagesOK := f.tryWalk(driver.Query{Collection: collection, At: at, Order: order}, 6, backward)
				if ok && pagesOK && !slices.Equal(got, whole) {
					t.Errorf("order %+v, backward %t:\n%q, want\n%q", order, backward, got, whole)
				}
			}
		}
	})
}

// tryWalk is walk for goroutines that may not end the test.
func (f *fixture) tryWalk(q driver.Query, size int, backward bool) (keys []string, ok bool) {
	q.Limit, q.Backward = size, backward
	for {
		vs, err := f.engine.Query(f.ctx, &q)
		if err != nil {
			f.Error(err)
			return nil, false
		}
		if len(vs) == 0 {
			return keys, true
		}
		if backward {
			keys = append(keysOf(vs), keys...)
			q.Before = positionIn(q.Order, vs[0])
		} else {
			keys = append(keys, keysOf(vs)...)
			q.After = positionIn(q.Order, vs[len(vs)-1])
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

func (s *suite) testFields(t *testing.T) {
	f := s.fixture(t)
	first := f.put("a", `{"big":"`+fmt.Sprintf("%02000d", 7)+`","n":1,"o":{"x":[1,{"y":null}]},"s":null}`)
	f.clock.move(time.Second)
	f.put("a", `{"n":2}`)
	for _, fields := range [][]string{nil, {}, {"n"}, {"s", "o"}, {"missing"}, {"o", "o", "n", "s", "big"}} {
		// The filter and the order may look at other fields.
		got := f.query(&driver.Query{
			At: first.RecordedAt, Fields: fields, Filter: eq(intField("n"), int64(1)), Order: []driver.Order{{Field: stringField("big")}},
		})
		if len(got) != 1 {
			t.Fatalf("fields %q: %d documents", fields, len(got))
		}
		if fields == nil {
			fields = []string{"big", "n", "o", "s"}
		}
		if problem := lacks(got[0], first, fields); problem != "" {
			t.Error(problem)
		}
		vs, err := f.engine.Get(f.ctx, collection, []driver.Ref{{Key: "a", At: first.RecordedAt}, {Key: "a", Number: 1}}, fields)
		if err != nil || len(vs) != 2 || vs[0] == nil || vs[1] == nil {
			t.Fatalf("Get of fields %q: %v, %v", fields, vs, err)
		}
		for _, v := range vs {
			if problem := lacks(v, first, fields); problem != "" {
				t.Errorf("Get: %s", problem)
			}
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
