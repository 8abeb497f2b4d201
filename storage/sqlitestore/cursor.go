package sqlitestore

import (
	"bytes"

	"zombiezen.com/go/sqlite"
)

// indexEntry is an entry of an index as of the query's instant. Value and key
// are in SQLite's memory, valid until the cursor moves.
type indexEntry struct {
	value []byte
	key   []byte
	doc   docID
}

// bound is a position between entries: before the first one with this value and
// this key, or greater ones.
type bound struct {
	value []byte
	key   string
}

const (
	fromLive  = `SELECT value, key, document FROM entries WHERE idx = ?1`
	fromOpen  = fromLive + ` AND since <= ?4`
	fromPast  = `SELECT value, key, document FROM past WHERE epoch = ?8 AND since <= ?4 AND until > ?4`
	fromKeys  = `SELECT NULL, key, id FROM documents INDEXED BY documents_key WHERE collection = ?1`
	ofValues  = ` AND value >= ?2 AND value < ?3`
	ofEntries = ` AND (value, key) >= (?2, ?6) AND (value, key) < (?3, ?7)` // takes longer for each entry
	ofKeys    = ` AND key >= ?2 AND key < ?3`
	inOrder   = ` ORDER BY value, key`
	inReverse = ` ORDER BY value DESC, key DESC`
)

// A limit is given with + 0: SQLite compiles a statement anew, each time that it is run,
// for a parameter that is a limit by itself.
const (
	countOf = `SELECT count(*) FROM (SELECT 1 FROM (`
	limited = `) LIMIT ?5 + 0)`
)

// entriesOf prepares a statement that yields the entries of an index in a range as of the
// query's instant, with what is before and after that: from table entries without later ones,
// from an epoch of table past, or both.
func (r *run) entriesOf(ix *index, before, after string, from, to bound) (*sqlite.Stmt, error) {
	if ix == r.coll.keys {
		return r.c.prepare(before+fromKeys+ofKeys+after, r.coll.id, keyOf(from.value), keyOf(to.value))
	}
	within := ofValues
	if from.key != "" || to.key != "" {
		within = ofEntries
	}
	entries, epoch, open := fromLive+within, int64(0), true
	if !r.live {
		var err error
		if epoch, open, err = r.epoch(ix); err != nil {
			return nil, err
		}
		entries = fromPast + within
		if open {
			entries = fromOpen + within + ` UNION ALL ` + entries
		}
	}
	s, err := r.c.Prepare(before + entries + after)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, ix.id)
	s.BindBytes(2, from.value)
	s.BindBytes(3, to.value)
	if !r.live {
		s.BindInt64(4, int64(r.at))
		s.BindInt64(8, epoch)
	}
	if within == ofEntries {
		s.BindText(6, from.key)
		s.BindText(7, to.key)
	}
	return s, nil
}

// epoch returns the epoch of the query's instant, and whether it is the open one.
func (r *run) epoch(ix *index) (id int64, open bool, err error) {
	s, err := r.c.prepare(`SELECT id, EXISTS(SELECT 1 FROM epochs l WHERE l.idx = ?1 AND l.start > ?2)
		FROM epochs WHERE idx = ?1 AND start <= ?2 ORDER BY start DESC LIMIT 1`, ix.id, r.at)
	if err != nil {
		return 0, false, err
	}
	row, err := s.Step()
	if row {
		id, open = s.ColumnInt64(0), s.ColumnInt64(1) == 0
	}
	return id, open, finish(s, err)
}

// cursor walks the entries of an index between two bounds, in the order of
// (value, key) or in reverse. It continues in a newer snapshot when the end of its own
// is requested: at an instant, an index has at most one entry with a value and a key.
type cursor struct {
	r        *run
	ix       *index
	from, to bound
	reverse  bool
	s        *sqlite.Stmt
	entry    indexEntry
}

// walk opens a cursor, which the caller closes. Only one may be open at a time.
func (r *run) walk(ix *index, from, to bound, reverse bool) (*cursor, error) {
	cur := &cursor{r: r, ix: ix, from: from, to: to, reverse: reverse}
	err := cur.open()
	return cur, err
}

func (cur *cursor) open() (err error) {
	order := inOrder
	switch {
	case cur.ix == cur.r.coll.keys && cur.reverse:
		order = ` ORDER BY key DESC`
	case cur.ix == cur.r.coll.keys:
		order = ` ORDER BY key`
	case cur.reverse:
		order = inReverse
	}
	cur.s, err = cur.r.entriesOf(cur.ix, "", order, cur.from, cur.to)
	return err
}

// renew continues after the current entry in a new snapshot.
func (cur *cursor) renew() error {
	after := bound{value: bytes.Clone(cur.entry.value), key: string(cur.entry.key)}
	if cur.ix == cur.r.coll.keys {
		after = bound{value: append([]byte{tagValue}, cur.entry.key...)}
	}
	switch {
	case cur.reverse:
		cur.to = after
	case cur.ix == cur.r.coll.keys:
		cur.from = bound{value: successor(after.value)}
	default:
		cur.from = bound{value: after.value, key: after.key + "\x00"}
	}
	cur.entry = indexEntry{}
	if err := cur.close(nil); err != nil {
		return err
	}
	if err := cur.r.renew(true); err != nil {
		return err
	}
	return cur.open()
}

// keyOf returns the key of an encoded value, or a text before or after all keys.
func keyOf(value []byte) string {
	switch {
	case value[0] < tagValue:
		return ""
	case value[0] > tagValue:
		return "\xff"
	}
	return string(value[1:])
}

// next moves to the next entry; false at the end.
func (cur *cursor) next() (bool, error) {
	if cur.entry.key != nil && cur.r.isAsked() {
		if err := cur.renew(); err != nil {
			return false, err
		}
	}
	row, err := cur.s.Step()
	if row {
		cur.entry = indexEntry{value: cur.r.c.raw(cur.s, 0), key: cur.r.c.raw(cur.s, 1), doc: docID(cur.s.ColumnInt64(2))}
	}
	return row, err
}

func (cur *cursor) close(err error) error {
	if cur.s == nil { // it could not be opened again
		return err
	}
	return finish(cur.s, err)
}

// countEntries counts the entries of an index in ranges, up to a limit; -1 is no limit.
func (r *run) countEntries(ix *index, ranges []span, limit int64) (int64, error) {
	total := int64(0)
	for _, sp := range ranges {
		s, err := r.entriesOf(ix, countOf, limited, bound{value: sp.low}, bound{value: sp.high})
		if err != nil {
			return 0, err
		}
		s.BindInt64(5, max(limit-total, -1))
		row, err := s.Step()
		if row {
			total += s.ColumnInt64(0)
		}
		if err := finish(s, err); err != nil || total == limit {
			return total, err
		}
	}
	return total, nil
}
