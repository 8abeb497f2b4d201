package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

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
