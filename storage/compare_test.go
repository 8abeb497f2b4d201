package storage

import (
	"context"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// Few pairs of large documents are compared at a time, and any number of small ones.
func TestFewLargeDocumentsAreCompared(t *testing.T) {
	s, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	small, large := &driver.Version{}, &driver.Version{Data: make([]byte, largeCompared)}
	compare := func(ctx context.Context, v *driver.Version) func() {
		done, err := s.compare(ctx, small, v)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	var last func()
	for range comparedTogether {
		last = compare(t.Context(), large)
	}
	if _, err := s.compare(ended, small, large); err == nil {
		t.Error("one more is compared")
	}
	compare(ended, small)()
	last()
	compare(t.Context(), large)()
}
