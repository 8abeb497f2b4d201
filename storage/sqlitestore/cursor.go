package sqlitestore

import (
	"bytes"
	"cmp"

	"zombiezen.com/go/sqlite"
)

// indexEntry is an entry of an index as of the query's instant. Value and key
// are in SQLite's memory, good until the cursor moves.
type indexEntry struct {
	value []byte
	key   []byte
	doc   docID
}

func (e indexEntry) compare(value, key []byte) int {
	return cmp.Or(bytes.Compare(e.value, value), bytes.Compare(e.key, key))
}

// bound is a place between entries: before all with this value and this key
// or a greater one.
type bound struct {
	value []byte
	key   string
}

const (
	entryRange = ` AND (value, key) >= (?2, ?3) AND (value, key) < (?4, ?5)`
	inOrder    = ` ORDER BY value, key`
	inReverse  = ` ORDER BY value DESC, key DESC`
	fromLive   = `SELECT value, key, document FROM entries WHERE idx = ?1` + entryRange
	fromOpen   = fromLive + ` AND since <= ?6`
	fromPast   = `SELECT value, key, document FROM past WHERE epoch = ?1` + entryRange + ` AND since <= ?6 AND until > ?6`
)

// entriesAt says where the entries of an index as of an instant lie: in table
// entries, those since then left out; in an epoch of table past; or in both.
type entriesAt struct {
	idx   int64 // 0: not in table entries
	epoch int64 // 0: not in table past
}

// locate finds where to read an index.
func (r *run) locate(ix *index) (entriesAt, error) {
	if r.live {
		return entriesAt{idx: ix.id}, nil
	}
	s, err := r.c.Prepare(`SELECT id, EXISTS(SELECT 1 FROM epochs l WHERE l.idx = ?1 AND l.start > ?2)
		FROM epochs WHERE idx = ?1 AND start <= ?2 ORDER BY start DESC LIMIT 1`)
	if err != nil {
		return entriesAt{}, err
	}
	s.BindInt64(1, ix.id)
	s.BindInt64(2, int64(r.at))
	at := entriesAt{}
	row, err := s.Step()
	if row {
		at.epoch = s.ColumnInt64(0)
		if s.ColumnInt64(1) == 0 {
			at.idx = ix.id
		}
	}
	return at, finish(s, err)
}

// cursor walks the entries of an index between two bounds, in the order of
// (value, key) or against it, merging the two tables.
type cursor struct {
	r       *run
	reverse bool
	live    *sqlite.Stmt // nil: at its end
	past    *sqlite.Stmt
	onLive  bool // which one the current entry came from
	onPast  bool
	entry   indexEntry
}

// walk opens a cursor. Only one is open at a time; close it.
func (r *run) walk(at entriesAt, from, to bound, reverse bool) (*cursor, error) {
	cur := &cursor{r: r, reverse: reverse}
	order := inOrder
	if reverse {
		order = inReverse
	}
	var err error
	if at.idx != 0 {
		query := fromLive
		if !r.live {
			query = fromOpen
		}
		if cur.live, err = r.bindEntries(query+order, at.idx, from, to); err != nil {
			return nil, err
		}
		if err = cur.step(&cur.live); err != nil {
			return nil, err
		}
	}
	if at.epoch != 0 {
		if cur.past, err = r.bindEntries(fromPast+order, at.epoch, from, to); err != nil {
			return nil, cur.close(err)
		}
		if err = cur.step(&cur.past); err != nil {
			return nil, cur.close(err)
		}
	}
	return cur, nil
}

func (r *run) bindEntries(query string, where int64, from, to bound) (*sqlite.Stmt, error) {
	s, err := r.c.Prepare(query)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, where)
	s.BindBytes(2, from.value)
	s.BindText(3, from.key)
	s.BindBytes(4, to.value)
	s.BindText(5, to.key)
	if !r.live {
		s.BindInt64(6, int64(r.at))
	}
	return s, nil
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

// countEntries counts the entries in ranges, up to a limit; 0 is no limit.
func (r *run) countEntries(at entriesAt, ranges []span, limit int64) (int64, error) {
	if limit == 0 {
		limit = -1
	}
	total := int64(0)
	for _, sp := range ranges {
		for _, part := range []struct {
			where int64
			query string
		}{{at.idx, fromOpen}, {at.epoch, fromPast}} {
			if part.where == 0 {
				continue
			}
			query := part.query
			if r.live {
				query = fromLive
			}
			left := int64(-1)
			if limit > 0 {
				left = limit - total
			}
			s, err := r.bindEntries(`SELECT count(*) FROM (SELECT 1 FROM (`+query+`) LIMIT ?7)`, part.where, bound{value: sp.low}, bound{value: sp.high})
			if err != nil {
				return 0, err
			}
			s.BindInt64(7, left)
			row, err := s.Step()
			if row {
				total += s.ColumnInt64(0)
			}
			if err := finish(s, err); err != nil {
				return 0, err
			}
			if limit > 0 && total >= limit {
				return total, nil
			}
		}
	}
	return total, nil
}
