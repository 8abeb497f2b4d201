package mongostore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// Of a page that is refused for its size no more is read than shows that, wherever its
// versions are.
func TestPageStopsAtBytes(t *testing.T) {
	ctx, s := t.Context(), openOverflowing(t, Bounds{})
	data := fmt.Appendf(nil, `{"s":%q}`, strings.Repeat("x", 1000))
	for i := range 20 {
		if _, err := driver.CommitOne(ctx, s, &driver.Write{ID: fmt.Sprint("a", i), Collection: "tools", Key: fmt.Sprintf("k%02d", i), Op: driver.OpCreate, Author: "ann", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	then, err := s.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 { // every other one is in the past
		if _, err := driver.CommitOne(ctx, s, &driver.Write{ID: fmt.Sprint("b", i), Collection: "tools", Key: fmt.Sprintf("k%02d", 2*i), Expected: 1, Op: driver.OpUpdate, Author: "ann", Data: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, backward := range []bool{false, true} {
		q := &driver.Query{Collection: "tools", At: then, Limit: 20, Backward: backward, Bytes: 3 * int64(len(data))}
		got, err := s.Query(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got); n < 4 || n > 8 {
			t.Errorf("backward %t: %d versions of %d bytes each, where more than 3 are too much", backward, n, len(data))
		}
	}
}
