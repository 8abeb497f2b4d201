package sqlitestore

import (
	"testing"

	"github.com/asof/asof/storage/driver"
)

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
					if err := s.read(t.Context(), func(conn *conn) error {
						vs, err := inSnapshot(r, conn, r.page)
						if int64(len(vs)) != want || r.rows > 2*c.want {
							t.Errorf("%s by %s, %d at most, at %s: %d documents of %d looked at, want %d", name, order, limit, at, len(vs), r.rows, want)
						}
						return err
					}); err != nil {
						t.Error(err)
					}
				}
			}
			r := s.newRun(t.Context(), &driver.Query{Collection: benchCollection, At: at, Filter: c.filter})
			if err := s.read(t.Context(), func(conn *conn) error {
				n, err := inSnapshot(r, conn, r.count)
				if n != c.want || r.rows > 2*c.want {
					t.Errorf("%s at %s: counted %d, %d documents looked at; want %d", name, at, n, r.rows, c.want)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	}
}
