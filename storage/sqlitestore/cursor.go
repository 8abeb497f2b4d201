package sqlitestore

import (
	"bytes"
	"cmp"

	"zombiezen.com/go/sqlite"
)

// indexEntry is an entry of an index as of the query's instant. Value and key
// are in SQLite's memory, valid until the cursor moves.
type indexEntry struct {
	value []byte
	key   []byte
	doc   docID
}

func (e indexEntry) compare(value, key []byte) int {
	return cmp.Or(bytes.Compare(e.value, value), bytes.Compare(e.key, key))
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
	fromPast  = `SELECT value, key, document FROM past WHERE epoch = ?1 AND since <= ?4 AND until > ?4`
	fromKeys  = `SELECT NULL, key, id FROM documents INDEXED BY documents_key WHERE collection = ?1`
	ofValues  = ` AND value >= ?2 AND value < ?3`
	ofEntries = ` AND (value, key) >= (?2, ?6) AND (value, key) < (?3, ?7)` // takes longer for each entry
	ofKeys    = ` AND key >= ?2 AND key < ?3`
	inOrder   = ` ORDER BY value, key`
	inReverse = ` ORDER BY value DESC, key DESC`
)

// source is a statement that yields entries, and the id of the index, the epoch
// or the collection that it reads; 0: there are none.
type source struct {
	query string
	where int64
}

// A limit is given with + 0: SQLite compiles a statement anew, each time that it is run,
// for a parameter that is a limit by itself.
const (
	countOf = `SELECT count(*) FROM (SELECT 1 FROM (`
	limited = `) LIMIT ?5 + 0)`
)

// sources returns the statements that yield the entries of an index as of the query's
// instant: from table entries without later ones, from an epoch of table past, or both.
func (r *run) sources(ix *index) (list [2]source, err error) {
	switch {
	case ix == r.coll.keys:
		return [2]source{{fromKeys, r.coll.id}}, nil
	case r.live:
		return [2]source{{fromLive, ix.id}}, nil
	}
	s, err := r.c.prepare(`SELECT id, EXISTS(SELECT 1 FROM epochs l WHERE l.idx = ?1 AND l.start > ?2)
		FROM epochs WHERE idx = ?1 AND start <= ?2 ORDER BY start DESC LIMIT 1`, ix.id, r.at)
	if err != nil {
		return list, err
	}
	row, err := s.Step()
	if row {
		list[1] = source{fromPast, s.ColumnInt64(0)}
		if s.ColumnInt64(1) == 0 {
			list[0] = source{fromOpen, ix.id}
		}
	}
	return list, finish(s, err)
}

// cursor walks the entries of an index between two bounds, in the order of
// (value, key) or in reverse, merging the two tables. It continues in a newer
// snapshot when the end of its own is requested: at an instant, an index has at most
// one entry with a value and a key.
type cursor struct {
	r        *run
	ix       *index
	from, to bound
	reverse  bool
	live     *sqlite.Stmt // nil: at its end
	past     *sqlite.Stmt
	onLive   bool // the current entry is from live
	onPast   bool
	entry    indexEntry
}

// walk opens a cursor, which the caller closes. Only one may be open at a time.
func (r *run) walk(ix *index, from, to bound, reverse bool) (*cursor, error) {
	cur := &cursor{r: r, ix: ix, from: from, to: to, reverse: reverse}
	err := cur.open()
	return cur, err
}

func (cur *cursor) open() error {
	order := inOrder
	switch {
	case cur.ix == cur.r.coll.keys && cur.reverse:
		order = ` ORDER BY key DESC`
	case cur.ix == cur.r.coll.keys:
		order = ` ORDER BY key`
	case cur.reverse:
		order = inReverse
	}
	sources, err := cur.r.sources(cur.ix)
	if err != nil {
		return err
	}
	for i, at := range []**sqlite.Stmt{&cur.live, &cur.past} {
		if sources[i].where == 0 {
			continue
		}
		if *at, err = cur.r.bindEntries(sources[i], "", order, cur.from, cur.to); err == nil {
			err = cur.step(at)
		}
		if err != nil {
			return cur.close(err)
		}
	}
	return nil
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
	cur.onLive, cur.onPast = false, false
	if err := cur.close(nil); err != nil {
		return err
	}
	if err := cur.r.renew(true); err != nil {
		return err
	}
	return cur.open()
}

// bindEntries prepares a source's query of a range, with what is before and after it.
func (r *run) bindEntries(src source, before, after string, from, to bound) (*sqlite.Stmt, error) {
	within := ofValues
	switch {
	case src.query == fromKeys:
		within = ofKeys
	case from.key != "" || to.key != "":
		within = ofEntries
	}
	s, err := r.c.Prepare(before + src.query + within + after)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, src.where)
	switch within {
	case ofKeys:
		s.BindText(2, keyOf(from.value))
		s.BindText(3, keyOf(to.value))
		return s, nil
	case ofEntries:
		s.BindText(6, from.key)
		s.BindText(7, to.key)
	}
	s.BindBytes(2, from.value)
	s.BindBytes(3, to.value)
	if src.query != fromLive {
		s.BindInt64(4, int64(r.at))
	}
	return s, nil
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

func (cur *cursor) step(s **sqlite.Stmt) error {
	row, err := (*s).Step()
	cur.r.entries++
	if !row {
		err = finish(*s, err)
		*s = nil
	}
	return err
}

// next moves to the next entry; false at the end.
func (cur *cursor) next() (bool, error) {
	if (cur.onLive || cur.onPast) && cur.r.isAsked() {
		if err := cur.renew(); err != nil {
			return false, err
		}
	}
	if cur.onLive {
		cur.onLive = false
		if err := cur.step(&cur.live); err != nil {
			return false, err
		}
	}
	if cur.onPast {
		cur.onPast = false
		if err := cur.step(&cur.past); err != nil {
			return false, err
		}
	}
	switch {
	case cur.live == nil && cur.past == nil:
		return false, nil
	case cur.past == nil:
		cur.onLive = true
		cur.entry = cur.read(cur.live)
	case cur.live == nil:
		cur.onPast = true
		cur.entry = cur.read(cur.past)
	default:
		a, b := cur.read(cur.live), cur.read(cur.past)
		if (a.compare(b.value, b.key) < 0) != cur.reverse {
			cur.onLive, cur.entry = true, a
		} else {
			cur.onPast, cur.entry = true, b
		}
	}
	return true, nil
}

func (cur *cursor) read(s *sqlite.Stmt) indexEntry {
	return indexEntry{value: cur.r.c.raw(s, 0), key: cur.r.c.raw(s, 1), doc: docID(s.ColumnInt64(2))}
}

func (cur *cursor) close(err error) error {
	for _, s := range []*sqlite.Stmt{cur.live, cur.past} {
		if s != nil {
			err = finish(s, err)
		}
	}
	cur.live, cur.past = nil, nil
	return err
}

// countEntries counts the entries of an index in ranges, up to a limit; -1 is no limit.
func (r *run) countEntries(ix *index, ranges []span, limit int64) (int64, error) {
	sources, err := r.sources(ix)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, sp := range ranges {
		for _, from := range sources {
			if from.where == 0 {
				continue
			}
			s, err := r.bindEntries(from, countOf, limited, bound{value: sp.low}, bound{value: sp.high})
			if err != nil {
				return 0, err
			}
			s.BindInt64(5, max(limit-total, -1))
			row, err := s.Step()
			if row {
				total += s.ColumnInt64(0)
			}
			if err := finish(s, err); err != nil {
				return 0, err
			}
			if total == limit {
				return total, nil
			}
		}
	}
	return total, nil
}
