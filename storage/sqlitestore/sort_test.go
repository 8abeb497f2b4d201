package sqlitestore

import (
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
