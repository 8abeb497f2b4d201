package sqlitestore

import (
	"context"
	"iter"
	"slices"
	"strings"
	"unicode"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// Log implements driver.Engine.
//
// Versions never change and are added only after the others, so a reader
// needs no snapshot of the file: it reads a batch of rows at a time and keeps no
// connection in between, however long the caller takes. Each stream yields
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
			if len(st.rows) > 0 && (first == nil || q.Backward == (st.rows[0].Position().Compare(first.rows[0].Position()) > 0)) {
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
		first.rows[0] = nil // a version may be large
		first.rows = first.rows[1:]
		if !yield(v, nil) {
			return nil
		}
		if count++; count == q.Limit {
			return nil
		}
	}
}

// streams returns one stream for each document, or for each collection.
func (s *Store) streams(ctx context.Context, q *driver.LogQuery) (out []*stream, err error) {
	colls := s.collections
	if len(q.Collections) > 0 {
		colls = nil
		for _, name := range slices.Compact(slices.Sorted(slices.Values(q.Collections))) {
			colls = append(colls, s.byName[name])
		}
	}
	if len(q.Keys) == 0 {
		for _, coll := range colls {
			out = append(out, newStream(s, q, coll))
		}
	} else {
		err = s.read(ctx, func(c *conn) error {
			for _, key := range slices.Compact(slices.Sorted(slices.Values(q.Keys))) {
				st := newStream(s, q, colls[0])
				if err := st.narrow(c, key); err != nil {
					return err
				}
				if st.doc != 0 {
					out = append(out, st)
				}
			}
			return nil
		})
	}
	// Together they take no more memory than one.
	for _, st := range out {
		st.batch = max(1, st.batch/len(out))
		st.bytes /= len(out)
	}
	return out, err
}

// How many rows a stream reads in its first batch and at most in one, and after how
// many bytes of data a batch ends. Merged streams share these.
const (
	firstRows  = 64
	maxRows    = 1024
	batchBytes = 1 << 20
)

// stream reads the versions of a collection, or of one document, in the order of
// commits or in reverse, in batches.
type stream struct {
	store *Store
	q     *driver.LogQuery
	coll  *collection

	// The remaining versions of a collection: from (at, key), inclusive, to (at, key),
	// exclusive. A document has at most one version at an instant, so this is unique.
	from, to place
	// The remaining versions of a document: [low, high) by row.
	doc       docID // 0: all documents of the collection
	low, high int64
	end       int64 // the row after its last version

	rows  []*driver.Version
	batch int // rows of the next batch
	bytes int
	ended bool
}

type place struct {
	at  driver.Instant
	key string
}

func (p place) less(o place) bool {
	return p.at < o.at || p.at == o.at && p.key < o.key
}

// placeAfter is the first place that is after the one of a key at an instant.
func placeAfter(at driver.Instant, key string) place { return place{at, key + "\x00"} }

func newStream(s *Store, q *driver.LogQuery, coll *collection) *stream {
	st := &stream{store: s, q: q, coll: coll, batch: firstRows, bytes: batchBytes}
	if q.Limit > 0 {
		st.batch = min(max(q.Limit, 8), maxRows)
	}
	// Later commits are not part of this log.
	st.from, st.to = place{at: q.From}, place{at: s.clock.Now() + 1}
	if q.To != 0 {
		st.to.at = min(st.to.at, q.To)
	}
	p := q.After
	if p == nil {
		return st
	}
	// What is at the position itself, wanted leaves out by its number.
	first, end := place{p.At, p.Key}, placeAfter(p.At, p.Key)
	switch {
	case coll.name < p.Collection:
		first = place{at: later(p.At)}
		end = first
	case coll.name > p.Collection:
		first = place{at: p.At}
		end = first
	}
	if !q.Backward && st.from.less(first) {
		st.from = first
	}
	if q.Backward && end.less(st.to) {
		st.to = end
	}
	return st
}

// noData reports whether a log needs no Data.
func noData(q *driver.LogQuery) bool { return q.Fields != nil && len(q.Fields) == 0 }

// later is the instant after one.
func later(at driver.Instant) driver.Instant { return max(at, at+1) }

// narrow limits a stream to one document, if it is there.
func (st *stream) narrow(c *conn, key string) error {
	at := func(p place) driver.Instant {
		if key < p.key {
			return later(p.at)
		}
		return p.at
	}
	const first = `CASE WHEN at >= ?3 THEN (SELECT v.id FROM versions v WHERE v.document = d.id AND v.at >= ?3 ORDER BY v.at LIMIT 1) END`
	s, err := c.prepare(`SELECT id, number, `+first+`, `+strings.ReplaceAll(first, "?3", "?4")+` FROM documents d WHERE collection = ?1 AND key = ?2`,
		st.coll.id, key, at(st.from), at(st.to))
	if err != nil {
		return err
	}
	return c.rows(s, func(s *sqlite.Stmt) error {
		st.doc = docID(s.ColumnInt64(0))
		st.end = st.doc.version(s.ColumnInt64(1) + 1)
		st.low, st.high = st.end, st.end
		for i, bound := range []*int64{&st.low, &st.high} {
			if !s.ColumnIsNull(2 + i) {
				*bound = s.ColumnInt64(2 + i)
			}
		}
		st.low = max(st.low, st.doc.version(min(st.q.FromNumber, maxNumber)))
		if st.q.ToNumber > 0 {
			st.high = min(st.high, st.doc.version(min(st.q.ToNumber, maxNumber)))
		}
		return nil
	})
}

// fill reads batches until there is a row or the end.
func (st *stream) fill(ctx context.Context) error {
	for len(st.rows) == 0 && !st.ended {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := st.store.read(ctx, st.read); err != nil {
			return err
		}
		st.batch = min(2*st.batch, maxRows)
	}
	return nil
}

// wanted reports whether a version is behind the log's position and passes its filters.
func (st *stream) wanted(v *driver.Version) bool {
	if p := st.q.After; p != nil {
		if order := v.Position().Compare(*p); order == 0 || order < 0 != st.q.Backward {
			return false
		}
	}
	return v.Number >= st.q.FromNumber && (st.q.ToNumber == 0 || v.Number < st.q.ToNumber) && st.q.Hints.Hold(v)
}

const (
	logRows        = `SELECT ` + versionColumns + `, ` + versionNext
	logWithoutData = `SELECT ` + versionHead + `, NULL, ` + versionNext
	logHeads       = `SELECT ` + versionHead + `, NULL, NULL`
	logOfDocument  = `SELECT ` + versionColumns

	ofCollection = ` FROM versions v WHERE v.collection = ?1 AND (v.at, v.key) >= (?2, ?3) AND (v.at, v.key) < (?4, ?5)`
	ofGroup      = ofCollection + ` AND v.grp = ?7 AND ` + untimed
	ofDocument   = ` FROM versions v WHERE v.id >= ?2 AND v.id < ?4`
	ofOperations = ofDocument + ` AND (?7 >> v.op) & 1`
)

// rowsForOne is in how many rows a statement looks for each version of a batch that is of some operations: while
// it runs it is not interrupted.
const rowsForOne = 64

// query is the statement of a batch, of the versions of a group where it is not empty, and of operations where
// they are not 0. Its limit is given with + 0, as in countOf.
func (st *stream) query(group string, operations int64) string {
	columns, of, order := logRows, ofCollection, ` ORDER BY v.at, v.key LIMIT ?6 + 0`
	switch {
	case noData(st.q) && st.doc != 0 && operations == 0:
		columns = logHeads
	case noData(st.q):
		columns = logWithoutData
	case st.doc != 0 && operations == 0:
		columns = logOfDocument
	}
	if st.doc != 0 {
		of = ofDocument
	}
	switch {
	case st.doc != 0 && st.q.Backward:
		order = ` ORDER BY v.id DESC LIMIT ?6 + 0`
	case st.doc != 0:
		order = ` ORDER BY v.id LIMIT ?6 + 0`
	case st.q.Backward:
		order = ` ORDER BY v.at DESC, v.key DESC LIMIT ?6 + 0`
	}
	switch {
	case group != "":
		of = ofGroup
	case operations != 0:
		of = ofOperations
	}
	return columns + of + order
}

// inIndex is the group whose versions the index of groups has all of; "" where other versions are wanted, or
// it is not there: a condition of the statement alone would look at all versions before it returned.
func (st *stream) inIndex() string {
	if len(st.q.Hints.Groups) != 1 || st.doc != 0 || !st.store.grouped.Load() {
		return ""
	}
	g := st.q.Hints.Groups[0]
	ascii := !strings.ContainsFunc(g, func(r rune) bool { return r > unicode.MaxASCII })
	if timed := len(g) > 14 && g[8] == '-' && g[13] == '-' && g[14] == '7'; timed || !ascii {
		return "" // not in the index, or a character may have several bytes
	}
	return g
}

// read reads a batch.
func (st *stream) read(c *conn) error {
	group, operations := st.inIndex(), int64(0)
	low, high := st.low, st.high
	if st.doc != 0 {
		for _, op := range st.q.Hints.Ops {
			operations |= 1 << op
		}
		switch {
		case operations != 0 && st.q.Backward:
			low = max(low, high-rowsForOne*int64(st.batch))
		case operations != 0:
			high = min(high, low+rowsForOne*int64(st.batch))
		}
	}
	s, err := c.Prepare(st.query(group, operations))
	if err != nil {
		return err
	}
	if st.doc != 0 {
		s.BindInt64(2, low)
		s.BindInt64(4, high)
		if operations != 0 {
			s.BindInt64(7, operations)
		}
	} else {
		s.BindInt64(1, st.coll.id)
		s.BindInt64(2, int64(st.from.at))
		s.BindText(3, st.from.key)
		s.BindInt64(4, int64(st.to.at))
		s.BindText(5, st.to.key)
		if group != "" {
			s.BindText(7, group)
		}
	}
	s.BindInt64(6, int64(st.batch))
	beside := st.doc != 0 && operations == 0 // the next version of a document is the next row
	var first, before, last *driver.Version
	id, n, size, passed := int64(0), 0, 0, 0
	row, err := s.Step()
	for ; row && err == nil && size < st.bytes && passed < batchBytes; row, err = s.Step() {
		before = last
		if last, err = c.version(s, st.coll.name, false, nil); err != nil {
			break
		}
		n++
		id = s.ColumnInt64(colID)
		switch {
		case !beside && !s.ColumnIsNull(colNext):
			last.SupersededAt = driver.Instant(s.ColumnInt64(colNext))
		case !beside:
		case before == nil:
			first = last
		case st.q.Backward:
			last.SupersededAt = before.RecordedAt
		default:
			before.SupersededAt = last.RecordedAt
		}
		if !st.wanted(last) {
			passed += last.Size()
			continue
		}
		if !noData(st.q) {
			last.Data = c.members(s, colData, st.q.Fields)
		}
		size += last.Size()
		st.rows = append(st.rows, last)
	}
	if err := finish(s, err); err != nil {
		return err
	}
	newest, after := last, id+1
	if st.q.Backward {
		newest, after = first, st.high
	}
	if last != nil && beside && after < st.end { // that row was not read
		at, err := c.integer(`SELECT at FROM versions WHERE id = ?1`, after)
		if err != nil {
			return err
		}
		newest.SupersededAt = driver.Instant(at)
	}
	switch through := !row && n < st.batch; {
	case through && st.q.Backward:
		st.high = low
	case through:
		st.low = high
	case last != nil:
		st.pass(id, last)
	}
	st.ended = !row && n < st.batch && (st.doc == 0 || st.low >= st.high)
	return nil
}

// pass removes the versions up to one, in a row, from those that remain.
func (st *stream) pass(id int64, v *driver.Version) {
	if st.q.Backward {
		st.high, st.to = id, place{v.RecordedAt, v.Key}
	} else {
		st.low, st.from = id+1, placeAfter(v.RecordedAt, v.Key)
	}
}
