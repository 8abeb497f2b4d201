package sqlitestore

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// Log implements driver.Engine.
//
// Versions never change and are added only behind the others, so a reader
// needs no snapshot of the file: it reads a stretch at a time and holds
// nothing in between, however long the loop takes. Each stream below yields
// versions in commit order; Log merges them.
func (s *Store) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		err := s.readLog(ctx, q, yield)
		if err != nil {
			yield(nil, wrap(err, "reading the log"))
		}
	}
}

func (s *Store) readLog(ctx context.Context, q *driver.LogQuery, yield func(*driver.Version, error) bool) error {
	streams, err := s.streams(ctx, q)
	if err != nil {
		return err
	}
	count := 0
	for {
		var first *stream
		for _, st := range streams {
			if err := st.fill(ctx); err != nil {
				return err
			}
			if len(st.rows) > 0 && (first == nil || q.Backward == (compareLog(st.rows[0], first.rows[0]) > 0)) {
				first = st
			}
		}
		if first == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		v := first.rows[0]
		first.rows = first.rows[1:]
		if !yield(v, nil) {
			return nil
		}
		if count++; count == q.Limit {
			return nil
		}
	}
}

// compareLog is the commit order.
func compareLog(a, b *driver.Version) int {
	return cmp.Or(
		cmp.Compare(a.RecordedAt, b.RecordedAt),
		cmp.Compare(a.Collection, b.Collection),
		cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Number, b.Number),
	)
}

// streams returns one stream for each document, or for each collection.
func (s *Store) streams(ctx context.Context, q *driver.LogQuery) ([]*stream, error) {
	colls := s.collections
	if len(q.Collections) > 0 {
		colls = nil
		for _, name := range q.Collections {
			coll := s.byName[name]
			if !slices.Contains(colls, coll) {
				colls = append(colls, coll)
			}
		}
	}
	if len(q.Keys) == 0 {
		var out []*stream
		for _, coll := range colls {
			out = append(out, newStream(s, q, coll))
		}
		share(out)
		return out, nil
	}
	var out []*stream
	err := s.reading(ctx, func(c *conn) error {
		out = nil
		for _, key := range slices.Compact(slices.Sorted(slices.Values(q.Keys))) {
			doc, last, err := c.lastVersion(colls[0], key)
			if err != nil {
				return err
			}
			if doc != 0 {
				st := newStream(s, q, colls[0])
				if err := st.narrow(c, doc, last, key); err != nil {
					return err
				}
				out = append(out, st)
			}
		}
		return nil
	})
	share(out)
	return out, err
}

// lastVersion is the number and the instant of a document's last version.
type lastVersion struct {
	number int64
	at     driver.Instant
}

// lastVersion finds a document; 0: there never was one.
func (c *conn) lastVersion(coll *collection, key string) (id docID, last lastVersion, err error) {
	s, err := c.Prepare(`SELECT id, number, at FROM documents WHERE collection = ?1 AND key = ?2`)
	if err != nil {
		return 0, last, err
	}
	s.BindInt64(1, coll.id)
	s.BindText(2, key)
	row, err := s.Step()
	if row {
		id, last = docID(s.ColumnInt64(0)), lastVersion{s.ColumnInt64(1), driver.Instant(s.ColumnInt64(2))}
	}
	return id, last, finish(s, err)
}
