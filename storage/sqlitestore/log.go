package sqlitestore

import (
	"cmp"
	"context"
	"iter"
	"slices"

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

// compareLog compares two versions by the order of commits.
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

// lastVersion returns a document's row and its last version; 0 if it never existed.
func (c *conn) lastVersion(coll *collection, key string) (id docID, last lastVersion, err error) {
	s, err := c.prepare(`SELECT id, number, at FROM documents WHERE collection = ?1 AND key = ?2`, coll.id, key)
	if err != nil {
		return 0, last, err
	}
	row, err := s.Step()
	if row {
		id, last = docID(s.ColumnInt64(0)), lastVersion{s.ColumnInt64(1), driver.Instant(s.ColumnInt64(2))}
	}
	return id, last, finish(s, err)
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
	store   *Store
	q       *driver.LogQuery
	coll    *collection
	authors map[string]bool
	groups  map[string]bool
	changed map[string]bool

	// The remaining versions of a collection: from (at, key), inclusive, to (at, key),
	// exclusive. A document has at most one version at an instant, so this is unique.
	from, to place
	// The remaining versions of a document: [low, high) by row.
	doc       docID // 0: all documents of the collection
	low, high int64

	rows  []*driver.Version
	batch int // rows of the next batch
	bytes int
	ended bool
}

type place struct {
	at  int64
	key string
}

func newStream(s *Store, q *driver.LogQuery, coll *collection) *stream {
	st := &stream{store: s, q: q, coll: coll, batch: firstRows, bytes: batchBytes}
	if q.Limit > 0 {
		st.batch = min(max(q.Limit, 8), maxRows)
	}
	st.conditions()
	// Later commits are not part of this log.
	st.from, st.to = place{at: int64(q.From)}, place{at: int64(s.clock.Now()) + 1}
	if q.To != 0 {
		st.to.at = min(st.to.at, int64(q.To))
	}
	p := q.After
	if p == nil {
		return st
	}
	// The first place after the position, in the direction of the log.
	after := place{at: int64(p.At), key: p.Key}
	switch {
	case coll.name == p.Collection && !q.Backward: // wanted looks at the number
	case coll.name == p.Collection:
		after.key += "\x00"
	case coll.name < p.Collection:
		after = place{at: later(int64(p.At))}
	default:
		after = place{at: int64(p.At)}
	}
	if q.Backward {
		if after.less(st.to) {
			st.to = after
		}
	} else if st.from.less(after) {
		st.from = after
	}
	return st
}

// conditions prepares the conditions that are checked for each version.
func (st *stream) conditions() {
	if len(st.q.Hints.Authors) > 0 {
		st.authors = setOf(st.q.Hints.Authors)
	}
	if len(st.q.Hints.Groups) > 0 {
		st.groups = setOf(st.q.Hints.Groups)
	}
	if len(st.q.Hints.Changed) > 0 {
		st.changed = setOf(st.q.Hints.Changed)
	}
}

// noData reports whether a log needs no Data.
func noData(q *driver.LogQuery) bool { return q.Fields != nil && len(q.Fields) == 0 }

// later is the instant after one.
func later(at int64) int64 {
	if at == forever {
		return at
	}
	return at + 1
}

// share divides the batch size among merged streams, so that together they take no
// more memory than one.
func share(streams []*stream) {
	for _, st := range streams {
		st.batch = max(1, st.batch/len(streams))
		st.bytes /= len(streams)
	}
}

func (p place) less(o place) bool {
	return p.at < o.at || p.at == o.at && p.key < o.key
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// narrow limits a stream to one document. It reads the index on times only for bounds
// that do not follow from the last version.
func (st *stream) narrow(c *conn, doc docID, last lastVersion, key string) error {
	st.doc, st.low, st.high = doc, doc.version(1), doc.version(last.number+1)
	bound := func(p place, to *int64) error {
		at := p.at
		if key < p.key {
			at = later(at)
		}
		switch {
		case at <= 0:
			*to = doc.version(1)
			return nil
		case int64(last.at) < at:
			*to = doc.version(last.number + 1)
			return nil
		case c.bulk.Load():
			return errBulk
		}
		var err error
		*to, err = c.integer(`SELECT id FROM versions INDEXED BY versions_at WHERE document = ?1 AND at >= ?2 ORDER BY at LIMIT 1`, doc, at)
		return err
	}
	if err := bound(st.from, &st.low); err != nil {
		return err
	}
	if err := bound(st.to, &st.high); err != nil {
		return err
	}
	if st.q.FromNumber > 0 {
		st.low = max(st.low, doc.version(min(st.q.FromNumber, maxNumber)))
	}
	if st.q.ToNumber > 0 {
		st.high = min(st.high, doc.version(min(st.q.ToNumber, maxNumber)))
	}
	return nil
}

// fill reads batches until there is a row or the end.
func (st *stream) fill(ctx context.Context) error {
	for len(st.rows) == 0 && !st.ended {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := st.read(ctx); err != nil {
			return err
		}
		st.batch = min(2*st.batch, maxRows)
	}
	return nil
}

// read reads a batch.
func (st *stream) read(ctx context.Context) error {
	if st.doc != 0 {
		return st.store.reading(ctx, st.readDocument)
	}
	return st.store.reading(ctx, st.readCollection)
}

// wanted reports whether a version passes the log's filters.
func (st *stream) wanted(v *driver.Version) bool {
	switch {
	case st.authors != nil && !st.authors[v.Author],
		st.groups != nil && !st.groups[v.Group],
		len(st.q.Hints.Ops) > 0 && !slices.Contains(st.q.Hints.Ops, v.Op):
		return false
	case v.Number < st.q.FromNumber, st.q.ToNumber > 0 && v.Number >= st.q.ToNumber:
		return false
	}
	if p := st.q.After; p != nil && v.RecordedAt == p.At && v.Collection == p.Collection && v.Key == p.Key &&
		(v.Number == p.Number || (v.Number < p.Number) != st.q.Backward) {
		return false
	}
	if st.changed == nil {
		return true
	}
	return slices.ContainsFunc(v.Changed, func(name string) bool { return st.changed[name] })
}

const (
	sqlDocumentLog         = `SELECT ` + versionColumns + ` FROM versions v WHERE v.id >= ?1 AND v.id < ?2 ORDER BY v.id`
	sqlDocumentLogBackward = sqlDocumentLog + ` DESC`

	logRange = ` FROM versions v INDEXED BY versions_log WHERE v.collection = ?1 AND (v.at, v.key) >= (?2, ?3) AND (v.at, v.key) < (?4, ?5)`
	// Limits are given with + 0, as in countOf.
	sqlLog         = `SELECT ` + versionColumns + `, ` + versionNext + logRange + ` ORDER BY v.at, v.key LIMIT ?6 + 0`
	sqlLogBackward = `SELECT ` + versionColumns + `, ` + versionNext + logRange + ` ORDER BY v.at DESC, v.key DESC LIMIT ?6 + 0`
)

// readDocument reads a batch of a document's rows, and the row after the newest of
// them, whose time is when that was superseded.
func (st *stream) readDocument(c *conn) error {
	low, high, query := st.low, st.high, sqlDocumentLog
	if st.q.Backward {
		low, query = max(low, high-int64(st.batch)), sqlDocumentLogBackward
	} else {
		high = min(high, low+int64(st.batch))
	}
	if low >= high {
		st.ended = true
		return nil
	}
	s, err := c.prepare(query, low, min(high+1, (st.doc+1).version(0)))
	if err != nil {
		return err
	}
	var near *driver.Version // the row before, in the order of reading
	size := 0
	row, err := s.Step()
	for ; row && err == nil; row, err = s.Step() {
		id := s.ColumnInt64(colID)
		inside := id >= low && id < high
		var v *driver.Version
		if v, err = c.version(s, st.coll.name, false, nil); err != nil {
			break
		}
		older, newer := near, v
		if st.q.Backward {
			older, newer = v, near
		}
		if near != nil {
			older.SupersededAt = newer.RecordedAt
		}
		if !inside && near != nil {
			break // after the batch
		}
		near = v
		if inside && st.wanted(v) {
			if !noData(st.q) {
				v.Data = c.members(s, colData, st.q.Fields)
			}
			st.rows = append(st.rows, v)
		}
		if size += v.Size(); inside && size >= st.bytes {
			// The batch is full: the next row is needed only for its time.
			if st.q.Backward {
				low = id
			} else {
				high = id + 1
			}
		}
	}
	if st.q.Backward {
		st.high = low
	} else {
		st.low = high
	}
	return finish(s, err)
}

// readCollection reads a batch by the index on commit times.
func (st *stream) readCollection(c *conn) error {
	if st.selects() {
		return st.readSelected(c)
	}
	query := sqlLog
	if st.q.Backward {
		query = sqlLogBackward
	}
	s, err := c.prepareIndexed(query)
	if err != nil {
		return err
	}
	st.bind(s)
	n, size := 0, 0
	row, err := s.Step()
	for ; row && err == nil && size < st.bytes; row, err = s.Step() {
		n++
		var v *driver.Version
		if v, err = c.version(s, st.coll.name, !noData(st.q), st.q.Fields); err != nil {
			break
		}
		v.SupersededAt = next(s)
		st.pass(place{at: int64(v.RecordedAt), key: v.Key})
		if !st.wanted(v) {
			continue
		}
		size += v.Size()
		st.rows = append(st.rows, v)
	}
	st.ended = n < st.batch && !row
	return finish(s, err)
}

// bind binds the remaining range to a statement of a collection's log.
func (st *stream) bind(s *sqlite.Stmt) {
	s.BindInt64(1, st.coll.id)
	s.BindInt64(2, st.from.at)
	s.BindText(3, st.from.key)
	s.BindInt64(4, st.to.at)
	s.BindText(5, st.to.key)
	s.BindInt64(6, int64(st.batch))
}

// pass removes the versions up to a place from the remaining range.
func (st *stream) pass(p place) {
	if st.q.Backward {
		st.to = p
		return
	}
	p.key += "\x00"
	st.from = p
}

// A collection's log with conditions is read in two steps for each batch: first
// author, operation and changed members of each version, which decide whether it
// passes, then the versions that do. No index finds these, but the documents of the
// other versions, which are the larger part, are not read.

const (
	selectNames         = `SELECT v.id, v.at, v.key, v.op, v.author, v.grp, v.changed`
	sqlSelect           = selectNames + logRange + ` ORDER BY v.at, v.key LIMIT ?6 + 0`
	sqlSelectBackward   = selectNames + logRange + ` ORDER BY v.at DESC, v.key DESC LIMIT ?6 + 0`
	sqlVersionUntilNext = `SELECT ` + versionColumns + `, ` + versionNext + ` FROM versions v WHERE v.id = ?1`
)

// The columns of sqlSelect.
const (
	selectID = iota
	selectAt
	selectKey
	selectOp
	selectAuthor
	selectGroup
	selectChanged
)

// selects reports whether conditions other than time and place may leave
// versions out.
func (st *stream) selects() bool {
	return st.authors != nil || st.groups != nil || st.changed != nil || len(st.q.Hints.Ops) > 0 || st.q.FromNumber > 0 || st.q.ToNumber > 0
}

// readSelected is readCollection where conditions may leave versions out.
func (st *stream) readSelected(c *conn) error {
	ids, last, n, err := st.selectVersions(c)
	if err != nil {
		return err
	}
	size := 0
	for _, id := range ids {
		v, err := c.versionUntilNext(id, st.coll.name, !noData(st.q), st.q.Fields)
		if err != nil {
			return err
		}
		if !st.wanted(v) {
			continue // it is at the position after which the log continues
		}
		st.rows = append(st.rows, v)
		if size += v.Size(); size >= st.bytes {
			st.pass(place{at: int64(v.RecordedAt), key: v.Key})
			return nil
		}
	}
	if n > 0 {
		st.pass(last)
	}
	st.ended = n < st.batch
	return nil
}

// selectVersions examines a batch. It returns the rows of the versions that meet the
// conditions, the last place that it examined, and the number of versions examined.
func (st *stream) selectVersions(c *conn) (ids []int64, last place, n int, err error) {
	query := sqlSelect
	if st.q.Backward {
		query = sqlSelectBackward
	}
	s, err := c.prepareIndexed(query)
	if err != nil {
		return nil, place{}, 0, err
	}
	st.bind(s)
	var key []byte
	if err := c.rows(s, func(s *sqlite.Stmt) error {
		n++
		last.at, key = s.ColumnInt64(selectAt), append(key[:0], c.raw(s, selectKey)...)
		ok, err := st.selected(c, s)
		if ok {
			ids = append(ids, s.ColumnInt64(selectID))
		}
		return err
	}); err != nil {
		return nil, place{}, 0, err
	}
	last.key = string(key)
	return ids, last, n, nil
}

// selected is wanted for a row that is not yet read as a version.
func (st *stream) selected(c *conn, s *sqlite.Stmt) (bool, error) {
	number := s.ColumnInt64(selectID) & maxNumber
	switch {
	case st.authors != nil && !st.authors[string(c.raw(s, selectAuthor))],
		st.groups != nil && !st.groups[string(c.raw(s, selectGroup))],
		len(st.q.Hints.Ops) > 0 && !slices.Contains(st.q.Hints.Ops, driver.Op(s.ColumnInt64(selectOp))),
		number < st.q.FromNumber, st.q.ToNumber > 0 && number >= st.q.ToNumber:
		return false, nil
	case st.changed == nil:
		return true, nil
	}
	names, err := c.changed(s, selectChanged)
	return slices.ContainsFunc(names, func(name string) bool { return st.changed[name] }), err
}

// versionUntilNext reads a version by its row.
func (c *conn) versionUntilNext(id int64, collection string, data bool, fields []string) (*driver.Version, error) {
	s, err := c.Prepare(sqlVersionUntilNext)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, id)
	var v *driver.Version
	row, err := s.Step()
	if row {
		if v, err = c.version(s, collection, data, fields); err == nil {
			v.SupersededAt = next(s)
		}
	}
	if err := finish(s, err); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, internalf("%s: the row %d of the log is not there any more", collection, id)
	}
	return v, nil
}
