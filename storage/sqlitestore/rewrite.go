package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/seal"
)

// Rewrite implements driver.Engine. Free pages are overwritten, so that nothing of what was there
// is left in the file.
func (s *Store) Rewrite(ctx context.Context, collection, key string, vs []driver.Version) error {
	if err := s.checkWritable(); err != nil {
		return err
	}
	return s.writer.submit(&request{ctx: ctx, rewrite: func() error { return s.writer.rewrite(s.byName[collection], key, vs) }})
}

// tryRewrite handles calls of Rewrite in one transaction.
func (w *writer) tryRewrite(batch []*request) error {
	if err := w.exec("PRAGMA secure_delete = ON"); err != nil {
		return uncommitted{err}
	}
	err := w.transaction(func() error {
		for _, r := range batch {
			if err := r.rewrite(); err != nil {
				return err
			}
		}
		return nil
	})
	return cmp.Or(err, w.exec("PRAGMA secure_delete = OFF"))
}

// Compact implements driver.Compacter.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.checkWritable(); err != nil {
		return err
	}
	return wrap(s.writer.submit(&request{ctx: ctx, run: func() error {
		s.readers.ask()
		return cmp.Or(s.writer.exec("VACUUM"), s.writer.exec("PRAGMA wal_checkpoint(TRUNCATE)"))
	}}), "giving space back")
}

const sqlRewriteVersion = `UPDATE versions SET op = ?4, deleted = ?5, author = ?6, message = ?7, grp = ?8, changed = ?9, seal = ?14, data = ?12 WHERE id = ?1`

// rewrite reads the versions from the one before the first to the one after the last, however long the history is.
func (w *writer) rewrite(coll *collection, key string, vs []driver.Version) error {
	st, err := w.state(coll, key)
	if err != nil {
		return err
	}
	byNumber := func(a, b driver.Version) int { return cmp.Compare(a.Number, b.Number) }
	first, last := slices.MinFunc(vs, byNumber).Number, slices.MaxFunc(vs, byNumber).Number
	if last >= st.number {
		return invalidf("%s %q has no version %d before its last one, which is %d", coll.name, key, last, st.number)
	}
	had := map[int64][][][]byte{}
	for i := range vs {
		v := &vs[i]
		was, err := w.versionByID(coll, st.id.version(v.Number), nil)
		if err != nil || was == nil {
			return cmp.Or(err, internalf("%s %q: version %d is missing", coll.name, key, v.Number))
		}
		if v.Seal != nil && !bytes.Equal(v.Seal, was.Seal) {
			continue
		}
		if had[v.Number] == nil {
			had[v.Number] = coll.values(was.Data)
		}
		if _, err := w.writeRow(sqlRewriteVersion, st, v, seal.Rewritten(was, v), st.id.version(v.Number), 0, 0); err != nil {
			return err
		}
		st.rewritten = max(st.rewritten, v.Number)
	}
	before, after, err := w.intervals(st, first-1, last+1, had)
	if err != nil {
		return err
	}
	w.pending.touch(st)
	for i, ix := range coll.indexes {
		stays := make(map[interval]bool, len(after.entries[i]))
		for _, h := range after.entries[i] {
			stays[h] = true
		}
		begins, ends := map[string]int64{}, map[string]int64{} // of what goes on beyond the versions that were read
		for _, h := range before.entries[i] {
			if stays[h] {
				delete(stays, h)
				continue
			}
			all, err := w.wholeInterval(ix, st, h)
			if err != nil {
				return err
			}
			if h.since == before.start {
				begins[h.value] = all.since
			}
			if h.until == forever {
				ends[h.value] = all.until
			}
			if err := w.removeInterval(ix.change(st, all)); err != nil {
				return err
			}
		}
		for _, h := range after.entries[i] {
			if !stays[h] {
				continue
			}
			if since, ok := begins[h.value]; ok && h.since == after.start {
				h.since = since
			}
			if until, ok := ends[h.value]; ok && h.until == forever {
				h.until = until
			}
			if err := w.addInterval(ix.change(st, h)); err != nil {
				return err
			}
		}
	}
	return nil
}

// interval is the time in which a document has a value in an index.
type interval struct {
	value        string
	since, until int64 // forever: it has it still
}

func (ix *index) change(st *state, h interval) change {
	return change{ix: ix, st: st, value: []byte(h.value), since: driver.Instant(h.since), until: driver.Instant(h.until)}
}

// intervals are what the indexes of a collection ought to hold for versions of one document that
// follow each other: for each index, in the order of their beginnings.
type intervals struct {
	coll    *collection
	start   int64 // of the first version
	entries [][]interval
	open    []map[string]int // of each index: values, and where they are in entries
}

func newIntervals(coll *collection) *intervals {
	l := &intervals{coll: coll, entries: make([][]interval, len(coll.indexes)), open: make([]map[string]int, len(coll.indexes))}
	for i := range l.open {
		l.open[i] = map[string]int{}
	}
	return l
}

// next adds the document's next version, of an instant, with its values, of which it keeps no reference.
func (l *intervals) next(at int64, values [][][]byte) {
	if l.start == 0 {
		l.start = at
	}
	for i, values := range values {
		for value, n := range l.open[i] {
			if _, ok := slices.BinarySearchFunc(values, value, func(b []byte, value string) int { return strings.Compare(rawjson.View(b), value) }); !ok {
				l.entries[i][n].until = at
				delete(l.open[i], value)
			}
		}
		for _, value := range values {
			if _, ok := l.open[i][string(value)]; !ok {
				l.open[i][string(value)] = len(l.entries[i])
				l.entries[i] = append(l.entries[i], interval{value: string(value), since: at, until: forever})
			}
		}
	}
}

// intervals follow from the versions of a document with numbers from first to last: as they are, and
// as they were when some had other values.
func (w *writer) intervals(st *state, first, last int64, had map[int64][][][]byte) (before, after *intervals, err error) {
	before, after = newIntervals(st.coll), newIntervals(st.coll)
	s, err := w.prepare(`SELECT id, at, data FROM versions WHERE id >= ?1 AND id <= ?2 ORDER BY id`, st.id.version(first), st.id.version(last))
	if err != nil {
		return nil, nil, err
	}
	return before, after, w.rows(s, func(s *sqlite.Stmt) error {
		at, values := s.ColumnInt64(1), st.coll.valuesIn(&w.values, w.raw(s, 2))
		after.next(at, values)
		if other, ok := had[s.ColumnInt64(0)&maxNumber]; ok {
			values = other
		}
		before.next(at, values)
		return nil
	})
}

// wholeInterval returns the interval of which h is a part, as the index has it; h, where it has none.
func (w *writer) wholeInterval(ix *index, st *state, h interval) (interval, error) {
	value := []byte(h.value)
	since, err := w.integer(`SELECT since FROM entries WHERE idx = ?1 AND value = ?2 AND key = ?3 AND since <= ?4`, ix.id, value, st.key, h.since)
	if err != nil || since > 0 {
		return interval{h.value, since, forever}, err
	}
	i := epochAt(ix.epochs, h.since)
	since, err = w.integer(`SELECT max(since) FROM past WHERE epoch = ?1 AND value = ?2 AND key = ?3 AND since <= ?4`, ix.epochs[i].id, value, st.key, h.since)
	if err != nil || since == 0 {
		return h, err
	}
	h.since = since
	for ; i < len(ix.epochs); i++ {
		until, err := w.integer(`SELECT until FROM past WHERE epoch = ?1 AND value = ?2 AND key = ?3 AND since = ?4`, ix.epochs[i].id, value, st.key, since)
		if err != nil || until == 0 { // it ended with the epoch before
			return h, err
		}
		if h.until = until; until != forever {
			break
		}
		h.until = ix.end(i)
	}
	return h, nil
}

// removeInterval removes an entry from table entries if it has not ended, and from every
// epoch that it overlaps.
func (w *writer) removeInterval(c change) error {
	ix := c.ix
	missing := func() error {
		return internalf("%s %q: the index on %v has no entry since %s; run a check", c.st.coll.name, c.st.key, ix.decl.Path, c.since)
	}
	ix.dirty = true
	open := int64(c.until) == forever
	if open {
		found, err := w.remove(&c)
		if err != nil {
			return err
		}
		if !found {
			return missing()
		}
		ix.live--
	}
	for i := len(ix.epochs) - 1; i >= 0 && ix.end(i) > int64(c.since); i-- {
		e := &ix.epochs[i]
		if e.start >= int64(c.until) {
			continue
		}
		switch until, err := w.integer(`DELETE FROM past WHERE epoch = ?1 AND value = ?2 AND key = ?3 AND since = ?4 RETURNING until`, e.id, c.value, c.st.key, c.since); {
		case err != nil:
			return err
		case until == 0 && open && i == len(ix.epochs)-1: // it is not copied before a cut
			continue
		case until == 0:
			return missing()
		case until == forever:
			e.base--
		default:
			e.closed--
		}
		e.dirty = true
	}
	return nil
}
