package mongostore

import (
	"fmt"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// Whoever read a version here, in whichever way and however large it is, updates it
// with one command.
func TestUpdateOfWhatWasRead(t *testing.T) {
	const large = 200 << 10
	for _, tc := range []struct {
		name  string
		bytes int
		read  func(s *Store) error
	}{
		{"by key", 0, func(s *Store) error {
			_, err := s.Get(t.Context(), "tools", []driver.Ref{{Key: "go", At: driver.Forever}}, nil)
			return err
		}},
		{"by key, large", large, func(s *Store) error {
			_, err := s.Get(t.Context(), "tools", []driver.Ref{{Key: "go", At: driver.Forever}}, nil)
			return err
		}},
		{"on a page", 0, func(s *Store) error {
			_, err := s.Query(t.Context(), &driver.Query{Collection: "tools", At: driver.Forever, Limit: 10})
			return err
		}},
		{"on a page of what was current then", 0, func(s *Store) error {
			now, err := s.Now(t.Context())
			if err == nil {
				_, err = s.Query(t.Context(), &driver.Query{Collection: "tools", At: now, Limit: 10})
			}
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent recorder
			s := openRecorded(t, Bounds{Bytes: 10 * large}, &sent)
			commitMore(t, s, 1, 2, tc.bytes)
			s.collections["tools"].forget("go")
			if err := tc.read(s); err != nil {
				t.Fatal(err)
			}
			sent.take()
			commitMore(t, s, 3, 3, tc.bytes)
			if commands := sent.take(); len(commands) != 1 {
				t.Errorf("the update took %d commands, want 1:\n%v", len(commands), commands)
			}
		})
	}
}

func TestHeadsAreBounded(t *testing.T) {
	const room = 4
	h := newHeads(1)
	h.put(documentKey{"tools", "0"}, &head{record: record{Version: driver.Version{Key: "0", Data: make([]byte, 100)}}})
	if h.known.Len() != 0 {
		t.Error("a head is kept that has no room")
	}
	bound := room * (headOverhead + 356)
	h = newHeads(bound)
	put := func(key string, number int64, bytes int) {
		r := record{Version: driver.Version{Key: key, Number: number, Data: make([]byte, bytes)}}
		h.put(documentKey{"tools", key}, &head{record: r})
		if size := h.known.Bytes(); size > bound {
			t.Fatalf("after %s, version %d: %d bytes, at most %d", key, number, size, bound)
		}
	}
	knows := func(key string, number int64, want bool) {
		t.Helper()
		if got := h.get(documentKey{"tools", key}, number) != nil; got != want {
			t.Errorf("%s, version %d: it is known: %t, want %t", key, number, got, want)
		}
	}
	for i := range 2 * room {
		put(fmt.Sprint(i), 1, 90)
	}
	for i := range 2 * room {
		knows(fmt.Sprint(i), 1, i >= room)
	}
	put("4", 1, 90)
	put("8", 1, 90) // the last of those that were looked at goes
	knows("4", 1, true)
	knows("5", 1, false)
	put("7", 3, 90)
	put("7", 2, 90)
	knows("7", 3, true)
	knows("7", 2, false)
	put("large", 1, bound-headOverhead-256-len("large"))
	knows("7", 3, false)
	knows("large", 1, true)
	h.drop(documentKey{"tools", "large"})
	knows("large", 1, false)
	if h.known.Bytes() != 0 {
		t.Errorf("%d bytes are counted of nothing", h.known.Bytes())
	}
}
