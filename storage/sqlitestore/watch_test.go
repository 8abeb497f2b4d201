package sqlitestore

import (
	"context"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// checkArrivalsOf compares what has arrived in a store, in the order of the
// numbers of each document, with how many versions each one has.
func checkArrivalsOf(t *testing.T, s *Store, want map[string]int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, left := map[string]int64{}, int64(0)
	for _, n := range want {
		left += n
	}
	end, _ := s.feed.look()
	for a, err := range s.Watch(ctx, &driver.WatchQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if v := a.Version; v != nil {
			if got[v.Key]++; got[v.Key] != v.Number || v.Number > want[v.Key] {
				t.Fatalf("version %d of %s arrived as its number %d of %d", v.Number, v.Key, got[v.Key], want[v.Key])
			}
			left--
		}
		if a.Position == s.id.position(end) {
			break
		}
	}
	if left != 0 {
		t.Fatalf("%d versions have not arrived", left)
	}
}
