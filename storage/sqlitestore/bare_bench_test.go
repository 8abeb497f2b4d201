package sqlitestore

import (
	"context"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// BenchmarkBeside compares reads with the bare statements that find the same on
// the same file, prepared, without a filter, an order within equal values, or a
// version made of what they find: what SQLite itself takes. The engine runs with
// versions kept in memory, and without.
func BenchmarkBeside(b *testing.B) {
	const docs, versions = 2000, 100_000
	past := benchStart + driver.Instant(versions/2*1000)
	q := driver.Query{Collection: benchCollection, Order: []driver.Order{{Field: driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}, Desc: true}}, Limit: 50}
	for _, kept := range []int{0, -1} {
		s := benchStore(b, Options{Sync: SyncOff, VersionCache: kept})
		benchLoad(b, s, benchVersions(docs, versions))
		if _, err := s.Query(context.Background(), &q); err != nil { // what a load leaves to do is done
			b.Fatal(err)
		}
		name := "engine"
		if kept < 0 {
			name = "engine, nothing kept"
		}
		for _, at := range []struct {
			name string
			at   driver.Instant
		}{{"current", driver.Forever}, {"asOf", past}} {
			b.Run("point/"+at.name+"/"+name, func(b *testing.B) {
				i := 0
				for b.Loop() {
					i++
					ref := driver.Ref{Key: benchKey(i * 7 % docs), At: at.at}
					if got, err := s.Get(context.Background(), benchCollection, []driver.Ref{ref}, nil); err != nil || got[0] == nil {
						b.Fatal(got, err)
					}
				}
			})
			b.Run("page/"+at.name+"/"+name, func(b *testing.B) {
				q := q
				q.At = at.at
				for b.Loop() {
					if got, err := s.Query(context.Background(), &q); err != nil || len(got) != 50 {
						b.Fatal(len(got), err)
					}
				}
			})
		}
		if kept < 0 {
			benchBare(b, s, docs, past)
		}
	}
}

func benchBare(b *testing.B, s *Store, docs int, past driver.Instant) {
	c, err := s.readers.get(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	defer s.readers.put(c)
	coll := s.byName[benchCollection]
	// look runs a statement that finds one row, and looks at its document.
	look := func(query string, args ...any) int {
		st, err := c.Prepare(query)
		if err != nil {
			b.Fatal(err)
		}
		for i, a := range args {
			if text, ok := a.(string); ok {
				st.BindText(i+1, text)
			} else {
				st.BindInt64(i+1, a.(int64))
			}
		}
		row, err := st.Step()
		if !row || err != nil {
			b.Fatal(row, err)
		}
		n := len(c.raw(st, colData))
		if err := finish(st, nil); err != nil {
			b.Fatal(err)
		}
		return n
	}
	b.Run("point/current/bare", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			look(sqlDocumentByKey, coll.id, benchKey(i*7%docs))
		}
	})
	b.Run("point/asOf/bare", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			look(sqlVersionAt, int64(docOf(coll.id, int64(i*7%docs)+1)), int64(past))
		}
	})
	for _, at := range []struct {
		name string
		at   driver.Instant
	}{{"current", driver.Forever}, {"asOf", past}} {
		b.Run("page/"+at.name+"/bare", func(b *testing.B) {
			r := s.newRun(context.Background(), &driver.Query{Collection: benchCollection, At: at.at})
			r.c = c
			err := r.begin()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				cur, err := r.walk(coll.indexes[0], bound{value: everything.low}, bound{value: everything.high}, true)
				if err != nil {
					b.Fatal(err)
				}
				for range 50 {
					if more, err := cur.next(); !more || err != nil {
						b.Fatal(more, err)
					}
					if at.at == driver.Forever {
						look(sqlDocumentByID, int64(cur.entry.doc))
					} else {
						look(sqlVersionAt, int64(cur.entry.doc), int64(at.at))
					}
				}
				if err := cur.close(nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
