package sqlitestore

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func TestNamesRoundTrip(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"stars", "updated_at2"}, {"A", "", "z"}, {"ключ"}, {`a"b`}, {"a.b", "<", "\u2028\x00"}, {"@", "[", "`", "{"}} {
		if got, err := decodeNames([]byte(encodeNames(names))); err != nil || !slices.Equal(got, names) {
			t.Errorf("%q became %q, %v", names, got, err)
		}
	}
	if got := encodeNames(nil); got != "" {
		t.Errorf("no names became %q", got)
	}
}

// A member is found by its name as documents have it, whatever is in the name.
func TestPathsFindQuotedNames(t *testing.T) {
	p := newPaths()
	p.add([]string{"a\"\u2028<", "b"}, 0)
	slots := make([][]byte, 1)
	p.find([]byte("{\"a\\\"\u2028<\":{\"b\":[1,2]}}"), slots)
	if string(slots[0]) != "[1,2]" {
		t.Errorf("found %q", slots[0])
	}
}

// The states of documents that are cached are bounded also where what they hold came after they were read.
func TestLargeValuesOfIndexesAreNotKept(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff})
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	const writes, size = 40, 1 << 20
	for i := range writes {
		data := fmt.Sprintf(`{"licence":"%d %s"}`, i, strings.Repeat("x", size))
		w := &driver.Write{ID: fmt.Sprint(i), Collection: benchCollection, Key: fmt.Sprint(i), Op: driver.OpCreate, Data: []byte(data)}
		if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
			t.Fatal(err)
		}
	}
	if grown := held() - before; grown > writes*size*2/3 {
		t.Errorf("after writes of %d bytes %d are in memory", writes*size, grown)
	}
}
