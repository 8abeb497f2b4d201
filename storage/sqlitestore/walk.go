package sqlitestore

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// indexEntry is an entry of an index as of the query's instant. Value and key
// are in SQLite's memory, valid until the cursor moves.
type indexEntry struct {
	value []byte
	key   []byte
	doc   docID
}

// bound is a position between entries: before the first one with this value and
// this key, or greater ones. Between keys it has no value.
type bound struct {
	value []byte
	key   string
}

const (
	fromLive  = `SELECT value, key, document FROM entries WHERE idx = ?1`
	fromOpen  = fromLive + ` AND since <= ?4`
	fromPast  = `SELECT value, key, document FROM past WHERE epoch = ?8 AND since <= ?4 AND until > ?4`
	fromKeys  = `SELECT NULL, key, id FROM documents INDEXED BY documents_key WHERE collection = ?1 AND key >= ?2 AND key < ?3`
	ended     = ` AND until < 9223372036854775807` // the others are in table entries, and may be in an epoch that is about to be cut
	ofValues  = ` AND value >= ?2 AND value < ?3`
	ofEntries = ` AND (value, key) >= (?2, ?6) AND (value, key) < (?3, ?7)` // takes longer for each entry
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
		return r.c.prepare(before+fromKeys+after, r.coll.id, from.key, to.key)
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
			entries = fromOpen + within + ` UNION ALL ` + entries + ended
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
	err = r.c.first(`SELECT id, EXISTS(SELECT 1 FROM epochs l WHERE l.idx = ?1 AND l.start > ?2)
		FROM epochs WHERE idx = ?1 AND start <= ?2 ORDER BY start DESC LIMIT 1`, func(s *sqlite.Stmt) error {
		id, open = s.ColumnInt64(0), s.ColumnInt64(1) == 0
		return nil
	}, ix.id, int64(r.at))
	return id, open, err
}

// walk calls f with the entries of an index between two bounds, in the order of (value, key) or
// in reverse, until it returns false. Only one walk may run at a time.
func (r *run) walk(ix *index, from, to bound, reverse bool, f func(e indexEntry) (more bool, err error)) error {
	order := inOrder
	switch {
	case ix == r.coll.keys && reverse: // with a constant before the key SQLite sorts
		order = ` ORDER BY key DESC`
	case ix == r.coll.keys:
		order = ` ORDER BY key`
	case reverse:
		order = inReverse
	}
	s, err := r.entriesOf(ix, "", order, from, to)
	if err != nil {
		return err
	}
	for more := true; more && err == nil; {
		if more, err = s.Step(); more {
			more, err = f(indexEntry{value: r.c.raw(s, 0), key: r.c.raw(s, 1), doc: docID(s.ColumnInt64(2))})
		}
	}
	return finish(s, err)
}

// countEntries counts the entries of an index in ranges, up to a limit; -1 is no limit.
func (r *run) countEntries(a access, limit int64) (int64, error) {
	total := int64(0)
	for _, sp := range a.ranges {
		from, to := a.bounds(sp)
		s, err := r.entriesOf(a.ix, countOf, limited, from, to)
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

// document reads the document of an index entry at the query's instant,
// and calls f if it existed and the filter accepts it.
func (r *run) document(ix *index, doc docID, key string, f visit) (bool, error) {
	if err := r.poll(); err != nil {
		return false, err
	}
	if ix == r.keysOf {
		r.rows++
		return f(row{kept: &driver.Version{Collection: r.coll.name, Key: strings.Clone(key)}}, doc)
	}
	if kept, _ := r.c.store.cached.find(documentKey{r.coll.id, key}, driver.Ref{At: r.at}, r.c.count); kept != nil && !kept.Deleted {
		if !r.matches(row{kept: kept}) {
			return true, nil
		}
		return f(row{kept: kept}, doc)
	}
	s, err := r.rowOf(doc)
	if err != nil {
		return false, err
	}
	if s == nil {
		r.rows++
		if ix != r.coll.keys {
			return false, internalf("%s: an index has an entry for document %d, which is not there; run a check", r.coll.name, doc)
		}
		return true, nil
	}
	goOn := true
	if r.matches(row{s: s}) {
		goOn, err = f(row{s: s}, doc)
	}
	return goOn, finish(s, err)
}

// rowOf returns a statement on the row of a document that has an index entry; nil if
// there is none. For a read of the past it reads the history only, which also has
// the current version.
func (r *run) rowOf(doc docID) (*sqlite.Stmt, error) {
	if !r.live {
		return r.inHistory(doc)
	}
	s, err := r.c.Prepare(sqlDocumentByID)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, int64(doc))
	row, err := s.Step()
	if err != nil || !row || s.ColumnInt64(colDeleted) != 0 {
		return nil, finish(s, err)
	}
	return s, nil
}

// selectEach calls f for the documents of the entries in ranges, once for each.
func (r *run) selectEach(a access, f visit) error {
	var seen map[docID]bool
	if !a.distinct() {
		seen = map[docID]bool{}
	}
	for _, sp := range a.ranges {
		from, to := a.bounds(sp)
		if err := r.walk(a.ix, from, to, false, func(e indexEntry) (bool, error) {
			if seen[e.doc] {
				return true, nil
			}
			if seen != nil {
				seen[e.doc] = true
			}
			return r.document(a.ix, e.doc, rawjson.View(e.key), f)
		}); err != nil {
			return err
		}
	}
	return nil
}

// selectPage reads the documents that a condition allows and sorts them.
func (r *run) selectPage(a access) ([]*driver.Version, error) {
	t := &top{r: r, limit: r.q.Limit}
	if err := r.selectEach(a, r.collect(t)); err != nil {
		return nil, err
	}
	return t.page()
}

// scanLimit is how many documents a plan examines before it falls back to a scan.
func (r *run) scanLimit() int64 {
	if r.q.Limit == 0 {
		return math.MaxInt64 / 2
	}
	return max(int64(r.q.Limit), r.size/16) + 64
}

// groupRead is how many entries with one value are sorted in memory. Above that,
// reading the index again in the order of the keys is cheaper.
const groupRead = 64

// orderedPage reads an index in the order of the query. It returns false when it
// examined more rows than its limit.
//
// The index orders by (value, key). That is the order of a query that sorts
// by this field alone, ascending, and backward its reverse. A descending
// order has keys ascend within a value, and further fields decide before the
// keys; then the entries of each value form a group that is sorted separately.
func (r *run) orderedPage(o ordered) ([]*driver.Version, bool, error) {
	desc := false
	if len(r.orders) > 0 {
		desc = r.orders[0].desc
	}
	p := &filler{r: r}
	w := &orderedWalk{run: r, filler: p, ix: o.ix, reverse: desc != r.q.Backward, scanLimit: r.rows + r.scanLimit()}
	w.grouped = !o.fixed && (desc || len(r.orders) > 1)
	if len(r.orders) > 1 && !o.fixed && r.orders[1].meta == driver.MetaKey && r.orders[1].desc == desc {
		w.grouped = false
	}
	w.byKey = len(r.orders) == 1
	ranges := slices.Clone(o.ranges)
	if w.reverse {
		slices.Reverse(ranges)
	}
	var err error
	for _, sp := range ranges {
		from, to := r.narrow(sp, o)
		if w.grouped {
			err = w.groups(from, to)
		} else {
			err = w.walk(w.ix, from, to, w.reverse, w.take)
		}
		if err != nil || w.overLimit || p.full() {
			break
		}
	}
	return p.page(), !w.overLimit, err
}

// narrow applies the bounds of the page to a range of values.
func (r *run) narrow(sp span, o ordered) (from, to bound) {
	from, to = o.bounds(sp)
	desc := len(r.orders) > 0 && r.orders[0].desc
	low, high := r.after, r.before
	if desc {
		low, high = high, low
	}
	if o.fixed { // the keys are the order
		if low != nil {
			from.key = max(from.key, low.key)
		}
		if high != nil && (to.key == "" || high.key < to.key) {
			to = bound{value: from.value, key: high.key}
		}
		return from, to
	}
	// Entries equal to a bound are included; the comparison of candidates excludes them.
	if low != nil && bytes.Compare(low.values[0], from.value) > 0 {
		from.value = low.values[0]
		if len(r.orders) == 1 && !desc {
			from.key = low.key
		}
	}
	if high != nil {
		if end := successor(high.values[0]); bytes.Compare(end, to.value) < 0 {
			to.value = end
			if len(r.orders) == 1 && !desc {
				to = bound{value: high.values[0], key: high.key + "\x00"}
			}
		}
	}
	return from, to
}

// orderedWalk is one walk along an index.
type orderedWalk struct {
	*run
	*filler
	ix        *index
	reverse   bool
	grouped   bool
	byKey     bool // within a group the keys alone decide
	scanLimit int64
	overLimit bool
}

// take adds the document of an entry to the page.
func (w *orderedWalk) take(e indexEntry) (bool, error) {
	return w.examine(e.doc, rawjson.View(e.key), w.visit)
}

// examine calls f with the document of an entry, and reports whether the walk goes on.
func (w *orderedWalk) examine(doc docID, key string, f visit) (bool, error) {
	more, err := w.document(w.ix, doc, key, f)
	w.overLimit = more && w.rows > w.scanLimit
	return more && !w.overLimit, err
}

// pair is a copy of an entry's key and document.
type pair struct {
	key string
	doc docID
}

// groups takes the entries of one value after the other. As long as groups are small, one walk
// reads them.
func (w *orderedWalk) groups(from, to bound) error {
	for {
		var value []byte
		var members []pair
		large := false
		err := w.walk(w.ix, from, to, w.reverse, func(e indexEntry) (bool, error) {
			if len(members) > 0 && !bytes.Equal(e.value, value) {
				if more, err := w.sorted(members); err != nil || !more {
					return false, err
				}
				members = members[:0]
			}
			if len(members) == 0 {
				value = append(value[:0], e.value...)
			}
			members = append(members, pair{key: string(e.key), doc: e.doc})
			large = w.byKey && len(members) > groupRead
			w.overLimit = !w.byKey && w.rows+int64(len(members)) > w.scanLimit // all of them would be examined
			return !large && !w.overLimit, nil
		})
		if err == nil && !large && !w.full() && !w.overLimit {
			_, err = w.sorted(members)
		}
		if err != nil || !large {
			return err
		}
		// Keys ascend in every order, and descend only backward.
		first, end := bound{value: value}, bound{value: successor(value)}
		if a := w.after; a != nil && bytes.Equal(a.values[0], value) {
			first.key = a.key
		}
		if b := w.before; b != nil && bytes.Equal(b.values[0], value) {
			end = bound{value: value, key: b.key}
		}
		if err := w.walk(w.ix, first, end, w.q.Backward, w.take); err != nil || w.full() || w.overLimit {
			return err
		}
		if w.reverse {
			to = bound{value: value}
		} else {
			from = bound{value: successor(value)}
		}
	}
}

// sorted takes the entries of a group in the query's order, and reports whether the walk goes on.
func (w *orderedWalk) sorted(members []pair) (bool, error) {
	if w.byKey {
		slices.SortFunc(members, func(a, b pair) int { return strings.Compare(a.key, b.key) })
		if w.q.Backward {
			slices.Reverse(members)
		}
		for _, m := range members {
			if more, err := w.examine(m.doc, m.key, w.visit); err != nil || !more {
				return false, err
			}
		}
		return true, nil
	}
	t := &top{r: w.run}
	if w.q.Limit > 0 {
		t.limit = w.q.Limit - len(w.out)
	}
	add := w.collect(t)
	for _, m := range members {
		if more, err := w.examine(m.doc, m.key, add); err != nil || !more {
			return false, err
		}
	}
	err := t.read(w.filler)
	return !w.full(), err
}
