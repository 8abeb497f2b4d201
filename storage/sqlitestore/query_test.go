package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// allocated is how many bytes f allocates, once it has its buffers.
func allocated(t *testing.T, f func()) uint64 {
	t.Helper()
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// longThings is a store of documents with long texts that differ at their end only, the
// greatest first, and a query of them.
func longThings(t *testing.T, length, documents int) (*Store, *driver.Query) {
	t.Helper()
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"))
	for i := range documents {
		loadThings(t, s, fmt.Sprintf("k%02d", i), 1, fmt.Sprintf(`{"text":"%s%03d","more":%d}`, strings.Repeat("x", length), documents-i, i%2))
	}
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, &driver.Query{
		Collection: "things", At: now, Fields: []string{"more"}, Limit: documents + 1,
		Order: []driver.Order{{Field: driver.Field{Path: []string{"text"}, Kind: driver.KindString}}},
	}
}

func queried(t *testing.T, s *Store, q *driver.Query) (keys []string, bytes int) {
	t.Helper()
	vs, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		keys = append(keys, v.Key)
		bytes += len(v.Data)
	}
	return keys, bytes
}

// A sort holds the beginnings of long values, however many there are, and still orders by
// the whole of them.
func TestSortOfLongValues(t *testing.T) {
	const documents = 20
	for _, past := range []bool{false, true} {
		var allocations [2]uint64
		for i, length := range []int{20_000, 200_000} {
			s, q := longThings(t, length, documents)
			if past {
				loadThings(t, s, "last", 2, `{"text":"","more":1}`)
				q.At = 1
			}
			keys, _ := queried(t, s, q)
			if len(keys) < documents || !slices.IsSortedFunc(keys, func(a, b string) int { return strings.Compare(b, a) }) {
				t.Errorf("past %v: in the order %v", past, keys)
			}
			allocations[i] = allocated(t, func() { queried(t, s, q) })
		}
		// The buffers for three whole values are the query's own.
		if few, many := allocations[0], allocations[1]; many > few+5*200_000 {
			t.Errorf("past %v: %d bytes are allocated for texts of 20 kB, and %d for those of 200 kB", past, few, many)
		}
	}
}

// What comes after a page that is refused is not read.
func TestPageReadsNoMoreThanWanted(t *testing.T) {
	s, q := longThings(t, 50_000, 40)
	q.Fields, q.Bytes = nil, 100_000
	for name, order := range map[string][]driver.Order{"by a text": q.Order, "by key": nil} {
		q.Order = order
		if keys, bytes := queried(t, s, q); len(keys) != 2 || bytes < 100_000 {
			t.Errorf("%s: %d documents, %d bytes", name, len(keys), bytes)
		}
	}
}

// However many conditions look at a text without regard to case, and whatever is written
// as an escape in it, it is folded once for all of them.
func TestTextsAreFoldedOnce(t *testing.T) {
	const length = 100_000
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"))
	loadThings(t, s, "k", 1, `{"text":"`+strings.Repeat(`É\n`, length/4)+`","name":"X"}`)
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := &driver.Query{Collection: "things", At: now}
	count := func() {
		if n, err := s.Count(t.Context(), q); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	var allocations [2]uint64
	for i, conditions := range []int{1, 100} {
		var all driver.And
		for range conditions {
			for path, value := range map[string]string{"text": "é\né", "name": "x"} {
				all = append(all, driver.Text{Field: driver.Field{Path: []string{path}, Kind: driver.KindString}, Op: driver.Contains, Value: value, Fold: true})
			}
		}
		q.Filter = all
		allocations[i] = allocated(t, count)
	}
	if one, many := allocations[0], allocations[1]; many > one+2*length {
		t.Errorf("%d bytes are allocated for one condition, and %d for a hundred", one, many)
	}
}

// Conditions on keys look at documents with these keys, whatever the instant, the
// order and the page.
func TestConditionsOnKeysAreRanges(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, Collections: benchDeclared()})
	const docs = 2000
	vs := benchVersions(docs, 3*docs)
	benchLoad(t, s, vs)
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	ten := benchKey(100)[:len(benchKey(100))-1]
	for _, at := range []driver.Instant{driver.Forever, vs[2*docs].RecordedAt} {
		for name, c := range map[string]struct {
			filter driver.Filter
			want   int64
		}{
			"eq":         {driver.Compare{Field: key, Op: driver.Eq, Value: benchKey(7)}, 1},
			"none":       {driver.Compare{Field: key, Op: driver.Eq, Value: "nobody"}, 0},
			"in":         {driver.In{Field: key, Values: []driver.Value{benchKey(1500), benchKey(3), "nobody", benchKey(3)}}, 2},
			"startsWith": {driver.Text{Field: key, Op: driver.HasPrefix, Value: ten}, 10},
			"and":        {driver.And{driver.Text{Field: key, Op: driver.HasPrefix, Value: ten}, driver.Compare{Field: stars, Op: driver.Ge, Value: int64(0)}}, 10},
		} {
			for order, orders := range map[string][]driver.Order{"keys": nil, "keys down": {{Field: key, Desc: true}}, "stars": {{Field: stars}}, "message": {{Field: driver.Field{Meta: driver.MetaMessage, Kind: driver.KindString}}}} {
				for _, limit := range []int{0, 5, 50} {
					want := c.want
					if limit > 0 {
						want = min(want, int64(limit))
					}
					r := s.newRun(t.Context(), &driver.Query{Collection: benchCollection, At: at, Filter: c.filter, Order: orders, Limit: limit})
					if vs, err := execute(r, r.page); err != nil || int64(len(vs)) != want || r.rows > 2*c.want {
						t.Errorf("%s by %s, %d at most, at %s: %d documents of %d looked at, want %d, %v", name, order, limit, at, len(vs), r.rows, want, err)
					}
				}
			}
			r := s.newRun(t.Context(), &driver.Query{Collection: benchCollection, At: at, Filter: c.filter})
			if n, err := execute(r, r.count); err != nil || n != c.want || r.rows > 2*c.want {
				t.Errorf("%s at %s: counted %d, %d documents looked at; want %d, %v", name, at, n, r.rows, c.want, err)
			}
		}
	}
}

// looked is a context that ends when it was looked at so many times.
type looked struct {
	context.Context
	times, end int
}

func (l *looked) Err() error {
	if l.times++; l.times > l.end {
		return context.DeadlineExceeded
	}
	return nil
}

// Few documents can take as long as many, where values and filters are large: a query looks
// whether it may go on while it compares, and ends with an error and no answer.
func TestComparisonsEndWithTheContext(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "looks.db"))
	for i := range 5 {
		loadThings(t, s, fmt.Sprint(i), 1, `{"text":"`+strings.Repeat("x", 200_000)+`","list":[`+strings.Repeat(`"a",`, 20_000)+`"b"]}`)
	}
	text := driver.Field{Path: []string{"text"}, Kind: driver.KindString}
	for name, filter := range map[string]driver.Filter{
		"texts": driver.Not{Filter: driver.Text{Field: text, Op: driver.Contains, Value: "y", Fold: true}},
		"lists": driver.Any{Field: driver.Field{Path: []string{"list"}}, Filter: driver.Text{Field: driver.Field{Kind: driver.KindString}, Op: driver.Equals, Value: "c"}},
	} {
		many := make(driver.And, 40)
		for i := range many {
			many[i] = driver.Or{filter, driver.Text{Field: text, Op: driver.HasPrefix, Value: "x"}}
		}
		now, err := s.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q := &driver.Query{Collection: "things", At: now, Filter: many}
		whole := &looked{Context: t.Context(), end: 1 << 30}
		if n, err := s.Count(whole, q); err != nil || n != 5 {
			t.Fatalf("%s: %d, %v", name, n, err)
		}
		if whole.times < 20 {
			t.Errorf("%s: the context was looked at %d times", name, whole.times)
		}
		for _, end := range []int{whole.times / 2, whole.times - 1} {
			cut := &looked{Context: t.Context(), end: end}
			if n, err := s.Count(cut, q); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, after %d looks: %d, %v", name, end, n, err)
			}
			cut = &looked{Context: t.Context(), end: end}
			if found, err := s.Query(cut, q); !errors.Is(err, context.DeadlineExceeded) || found != nil {
				t.Errorf("%s, after %d looks: %d documents, %v", name, end, len(found), err)
			}
		}
	}
}

// Conditions of which one must hold are ranges of an index where all are about it, and so is the
// absence of a value.
func TestRangesOfAnIndex(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff})
	licence := driver.Field{Path: []string{"licence"}, Kind: driver.KindString}
	is := func(value string) driver.Filter { return driver.Compare{Field: licence, Op: driver.Eq, Value: value} }
	null := driver.Not{Filter: driver.Present{Field: licence}}
	stars := driver.Compare{Field: driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}, Op: driver.Eq, Value: int64(1)}
	tag := driver.Any{Field: driver.Field{Path: []string{"tags"}}, Filter: driver.Compare{Field: driver.Field{Kind: driver.KindString}, Op: driver.Eq, Value: "t"}}
	for _, c := range []struct {
		filter driver.Filter
		want   int // ranges
		point  bool
	}{
		{null, 1, true},
		{driver.Present{Field: licence}, 1, false},
		{driver.Or{is("b"), null, is("a"), is("b")}, 3, true},
		{driver.Not{Filter: driver.Or{is("b"), null}}, 2, false},
		{driver.Or{is("a"), stars}, 0, false},
		{driver.Or{tag, tag}, 0, false},
		{driver.Or{}, 0, false},
	} {
		a, _ := s.byName[benchCollection].accessOfOne(c.filter)
		if len(a.ranges) != c.want || c.want > 0 && a.ranges[0].point() != c.point {
			t.Errorf("%v: %q", c.filter, a.ranges)
		}
	}
}
