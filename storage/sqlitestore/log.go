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
func (s *Store) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[driver.Entry, error] {
	return func(yield func(driver.Entry, error) bool) {
		err := s.readLog(ctx, q, yield)
		if err != nil {
			yield(driver.Entry{}, wrap(err, "reading the log"))
		}
	}
}

func (s *Store) readLog(ctx context.Context, q *driver.LogQuery, yield func(driver.Entry, error) bool) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	if q.Limit < 0 {
		return invalidf("a limit of %d versions", q.Limit)
	}
	if q.Histories != nil {
		return s.readHistories(ctx, q, yield)
	}
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
			if len(st.rows) > 0 && (first == nil || q.Backward == (compareLog(st.rows[0].Version, first.rows[0].Version) > 0)) {
				first = st
			}
		}
		if first == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		e := first.rows[0]
		first.rows = first.rows[1:]
		if !yield(e, nil) {
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
			coll, err := s.collection(name)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(colls, coll) {
				colls = append(colls, coll)
			}
		}
	}
	if len(q.Keys) > 0 && len(colls) != 1 {
		return nil, invalidf("a log of keys needs exactly one collection, got %d", len(colls))
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
			doc, err := c.documentID(colls[0], key)
			if err != nil {
				return err
			}
			if doc != 0 {
				st := newStream(s, q, colls[0])
				if err := st.narrow(c, doc, key); err != nil {
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

// documentID finds a document; 0: there never was one.
func (c *conn) documentID(coll *collection, key string) (docID, error) {
	s, err := c.Prepare(`SELECT id FROM documents WHERE collection = ?1 AND key = ?2`)
	if err != nil {
		return 0, err
	}
	s.BindInt64(1, coll.id)
	s.BindText(2, key)
	id := docID(0)
	row, err := s.Step()
	if row {
		id = docID(s.ColumnInt64(0))
	}
	return id, finish(s, err)
}

// histories reads the versions of several documents, one document after
// another. It reads as many as fit into a stretch at once, on one connection and
// in one snapshot: where they are small, all of them.
type histories struct {
	store *Store
	q     *driver.LogQuery
	coll  *collection
	now   driver.Instant // what is committed later is not part of this log
	// What is left: the history that is being read, if it is, and those from next on.
	open *stream
	next int
	rows []driver.Entry
	out  leftOut
}

// readHistories is readLog for a query with histories.
func (s *Store) readHistories(ctx context.Context, q *driver.LogQuery, yield func(driver.Entry, error) bool) error {
	if len(q.Collections) != 1 || len(q.Keys) > 0 || q.After != nil {
		return invalidf("a log of histories needs exactly one collection, and neither keys nor a position")
	}
	coll, err := s.collection(q.Collections[0])
	if err != nil {
		return err
	}
	h := &histories{store: s, q: q, coll: coll, now: s.clock.Now()}
	for h.open != nil || h.next < len(q.Histories) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.read(ctx); err != nil {
			return err
		}
		if err := h.out.examined(q); err != nil {
			return err
		}
		for _, e := range h.rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !yield(e, nil) {
				return nil
			}
		}
	}
	return nil
}

// read reads what fits into a stretch. It begins anew where the indexes have to
// be waited for.
func (h *histories) read(ctx context.Context) error {
	begun := *h
	var open stream
	if h.open != nil {
		open = *h.open
	}
	return h.store.reading(ctx, func(c *conn) error {
		*h = begun
		h.rows, h.out = h.rows[:0], leftOut{}
		if h.open != nil {
			restored := open
			h.open = &restored
		}
		for size := 0; size < stretchBytes && len(h.rows) < maxStretch; {
			if h.open == nil {
				if h.next == len(h.q.Histories) {
					return nil
				}
				if h.next%64 == 63 && ctx.Err() != nil {
					return ctx.Err()
				}
				if err := h.begin(c); err != nil {
					return err
				}
				continue
			}
			n, err := h.readOpen(c)
			if err != nil {
				return err
			}
			size += n
		}
		return nil
	})
}

// begin finds the next document, and where its history begins and ends.
func (h *histories) begin(c *conn) error {
	one := h.q.Of(h.q.Histories[h.next])
	h.next++
	key := one.Keys[0]
	doc, last, err := c.lastVersion(h.coll, key)
	if err != nil || doc == 0 {
		return err
	}
	st := &stream{store: h.store, q: one, coll: h.coll, doc: doc, bytes: stretchBytes, left: one.Limit, stretch: firstStretch}
	st.conditions()
	if one.Limit > 0 && st.authors == nil && st.groups == nil && st.changed == nil && len(one.Ops) == 0 {
		st.stretch = min(one.Limit, maxStretch)
	}
	if st.low, st.high, err = c.numbers(doc, last, one, h.now); err != nil {
		return err
	}
	if st.low < st.high {
		h.open = st
	}
	return nil
}

// readOpen reads on in the open history, and returns how many bytes it read.
func (h *histories) readOpen(c *conn) (size int, err error) {
	st := h.open
	st.rows = nil
	if err := st.readDocument(c); err != nil {
		return 0, err
	}
	st.stretch = min(2*st.stretch, maxStretch)
	for _, e := range st.rows {
		e.History = h.next - 1
		h.rows = append(h.rows, e)
		size += len(e.Version.Data)
	}
	h.out.versions += st.out.versions
	h.out.bytes += st.out.bytes
	size += st.out.bytes
	st.out = leftOut{}
	if st.left > 0 {
		if st.left -= len(st.rows); st.left == 0 {
			st.ended = true
		}
	}
	if st.ended || st.low >= st.high {
		h.open = nil
	}
	return size, nil
}

const sqlLastVersion = `SELECT id, number, at FROM documents WHERE collection = ?1 AND key = ?2`

// version and instant of a document's last version.
type lastVersion struct {
	number int64
	at     driver.Instant
}

// lastVersion finds a document; 0: there never was one.
func (c *conn) lastVersion(coll *collection, key string) (id docID, last lastVersion, err error) {
	s, err := c.Prepare(sqlLastVersion)
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

// numbers returns the rows of a document's history that are between the bounds of
// a query; the index on times is asked only for those that its last version does
// not answer.
func (c *conn) numbers(doc docID, last lastVersion, q *driver.LogQuery, now driver.Instant) (low, high int64, err error) {
	low, high = doc.version(max(q.FromNumber, 1)), doc.version(last.number+1)
	if q.FromNumber > last.number {
		return high, high, nil
	}
	if q.ToNumber > 0 {
		high = min(high, doc.version(min(q.ToNumber, maxNumber)))
	}
	to := now + 1
	if q.To != 0 {
		to = min(to, q.To)
	}
	if last.at >= to {
		behind, err := c.firstFrom(doc, to)
		if err != nil {
			return 0, 0, err
		}
		high = min(high, behind)
	}
	if q.From <= 0 || low >= high {
		return low, high, nil
	}
	if last.at < q.From {
		return high, high, nil
	}
	first, err := c.firstFrom(doc, q.From)
	return max(low, first), high, err
}

// firstFrom is the row of the first version at or after an instant, which is not
// after the last one.
func (c *conn) firstFrom(doc docID, at driver.Instant) (int64, error) {
	if c.bulk.Load() {
		return 0, errBulk
	}
	return c.integer(`SELECT id FROM versions INDEXED BY versions_at WHERE document = ?1 AND at >= ?2 ORDER BY at LIMIT 1`, int64(doc), int64(at))
}
