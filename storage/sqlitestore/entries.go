package sqlitestore

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/asof/asof/storage/driver"
)

// pending holds the index changes of a transaction. They are written at its end, in
// the order of the file.
type pending struct {
	touched []*state
	closing []change // entries in the file that end
	ended   []change // entries that began and ended within the transaction
}

// change is an entry of an index that began or ended.
type change struct {
	ix           *index
	st           *state
	value        []byte
	since, until driver.Instant
}

// maxPending is the largest capacity, in changes, that pending keeps.
const maxPending = 1 << 15

func (p *pending) reset() {
	*p = pending{closing: resetChanges(p.closing), ended: resetChanges(p.ended)}
}

func resetChanges(changes []change) []change {
	if cap(changes) > maxPending {
		return nil
	}
	clear(changes)
	return changes[:0]
}

// touch adds a document to those whose entries flush writes.
func (p *pending) touch(st *state) {
	if !st.touched {
		st.touched = true
		p.touched = append(p.touched, st)
	}
}

// setCurrent makes v, with the given number, the last version of a document: in its
// state, the counters of its collection, and the entries of the indexes, which
// flush will write. It keeps no reference to v.
func (w *writer) setCurrent(st *state, number int64, v *driver.Version) {
	coll := st.coll
	w.pending.touch(st)
	values := coll.valuesIn(&w.values, v.Data)
	for i, ix := range coll.indexes {
		st.entries[i] = w.supersede(ix, st, st.entries[i], values[i], v.RecordedAt)
	}
	if was, is := st.number > 0 && !st.deleted, !v.Deleted; was && !is {
		coll.live--
	} else if is && !was {
		coll.live++
	}
	coll.versions++
	coll.last = max(coll.last, v.RecordedAt)
	coll.dirty = true
	st.number, st.at, st.deleted = number, v.RecordedAt, v.Deleted
}

// supersede returns the entries of a document in an index from an instant on, and
// records those that end then. Entries and values are in ascending order.
// The given slice is overwritten.
func (w *writer) supersede(ix *index, st *state, had []entry, values [][]byte, at driver.Instant) []entry {
	if slices.EqualFunc(had, values, func(e entry, value []byte) bool { return bytes.Equal(e.value, value) }) {
		return had
	}
	end := func(e entry) {
		if e.stored {
			w.pending.closing = append(w.pending.closing, change{ix: ix, st: st, value: e.value, until: at})
		} else {
			w.pending.ended = append(w.pending.ended, change{ix: ix, st: st, value: e.value, since: e.since, until: at})
		}
	}
	if len(had) == 1 && len(values) == 1 {
		end(had[0])
		had[0] = w.newEntry(values[0], at)
		return had
	}
	has := make([]entry, 0, len(values))
	for _, value := range values {
		for len(had) > 0 && bytes.Compare(had[0].value, value) < 0 {
			end(had[0])
			had = had[1:]
		}
		if len(had) > 0 && bytes.Equal(had[0].value, value) {
			has = append(has, had[0])
			had = had[1:]
			continue
		}
		has = append(has, w.newEntry(value, at))
	}
	for _, e := range had {
		end(e)
	}
	return has
}

// newEntry is one of a document's state, which is cached.
func (w *writer) newEntry(value []byte, at driver.Instant) entry {
	e := entry{value: bytes.Clone(value), since: at}
	w.cache.bytes += e.size() // what it replaces stays counted: the cache is emptied a little earlier
	return e
}

// flushEntries writes the index changes of a transaction.
func (w *writer) flushEntries() error {
	p := &w.pending
	slices.SortFunc(p.closing, compareChanges)
	slices.SortFunc(p.ended, compareChanges)
	ended := int64(0)
	for _, c := range p.closing {
		found, err := w.remove(&c)
		if err != nil {
			return err
		}
		if !found {
			return internalf("%s %q: the index on %v has no entry for the last version; run a check", c.st.coll.name, c.st.key, c.ix.decl.Path)
		}
		c.ix.live--
		ended += sizeOf(len(c.value), len(c.st.key))
		if err := w.endOpen(c); err != nil {
			return err
		}
	}
	for _, c := range p.ended {
		if err := w.addInterval(c); err != nil {
			return err
		}
	}
	var opening []change
	for _, st := range p.touched {
		st.touched = false
		for i, ix := range st.coll.indexes {
			for k := range st.entries[i] {
				if e := &st.entries[i][k]; !e.stored {
					e.stored = true
					opening = append(opening, change{ix: ix, st: st, value: e.value, since: e.since, until: driver.Forever})
				}
			}
		}
	}
	slices.SortFunc(opening, compareChanges)
	for _, c := range opening {
		if err := w.addInterval(c); err != nil {
			return err
		}
	}
	p.reset()
	w.copies = max(w.store.opts.copyStep, min(ended, 2*w.store.opts.copyStep))
	return w.flushIndexes()
}

// remove deletes an entry that has ended, sets its since and reports whether there was
// one. It takes two statements, as RETURNING makes a temporary table for each call: an
// update took 8 % more processor time.
func (w *writer) remove(c *change) (bool, error) {
	const of = ` FROM entries WHERE idx = ?1 AND value = ?2 AND key = ?3`
	for i, query := range []string{`SELECT since` + of, `DELETE` + of} {
		since, err := w.integer(query, c.ix.id, c.value, c.st.key)
		if err != nil {
			return false, err
		}
		if i == 0 {
			c.since = driver.Instant(since)
		}
	}
	return w.Changes() == 1, nil
}

// flushIndexes cuts epochs that are too large and writes the counters of all indexes.
func (w *writer) flushIndexes() error {
	place := 0
	for _, late := range []bool{false, true} { // from another one each time, so that each is copied
		place = 0
		for _, coll := range w.store.collections {
			for _, ix := range coll.indexes {
				if place++; place <= w.first != late {
					continue
				}
				if err := w.flushIndex(coll, ix); err != nil {
					return err
				}
			}
		}
	}
	w.first = (w.first + 1) % max(place, 1)
	return nil
}

// flushIndex does the same for one index of a collection.
func (w *writer) flushIndex(coll *collection, ix *index) error {
	if !ix.dirty {
		return nil
	}
	if err := w.cut(coll, ix); err != nil {
		return err
	}
	if _, err := w.integer(`UPDATE indexes SET live = ?2 WHERE id = ?1`, ix.id, ix.live); err != nil {
		return err
	}
	for i := range ix.epochs {
		e := &ix.epochs[i]
		if !e.dirty {
			continue
		}
		e.dirty = false
		if _, err := w.integer(`UPDATE epochs SET base = ?2, closed = ?3 WHERE id = ?1`, e.id, e.base, e.closed); err != nil {
			return err
		}
	}
	ix.dirty = false
	return nil
}

func compareChanges(a, b change) int {
	if a.ix != b.ix {
		return cmp.Compare(a.ix.id, b.ix.id)
	}
	if order := bytes.Compare(a.value, b.value); order != 0 {
		return order
	}
	if a.st != b.st {
		return cmp.Compare(a.st.key, b.st.key)
	}
	return cmp.Compare(a.since, b.since)
}

// The declared indexes as of any instant.
//
// Table entries holds the present entries of each index. Table past holds the former
// ones: values with the interval [since, until) in which a document had
// them, written only when a value changes, not with every version. To find
// the entries of one instant without reading all of the past, the past is cut
// into epochs. An epoch holds every entry whose interval overlaps it, so that a
// read is one range of one epoch; in the open epoch, which is the last, together
// with the same range of table entries.
//
// An epoch is cut when the entries that ended in it are more than epochSlack and
// more than those that continue, or after a large load when the writer is
// idle. So a read examines at most about three times the entries that it returns. Fewer
// entries are copied than had ended, so the space
// stays proportional to the number of changes. This is the time split of
// the time-split B-tree (Lomet and Salzberg, 1989).
//
// An entry that continues after a closed epoch has until = forever there. There may be
// millions of these, so they are copied before the epoch is closed, some with each
// transaction: in the open epoch, reads pass over them.

const (
	// epochSlack is the number of ended entries that an epoch may hold in any case.
	epochSlack = 1000
	// copyStep is how many entries that continue a transaction copies before cuts, by sizeOf, or
	// as many as it ends, but twice as many at most: some milliseconds, or a tenth of a second.
	copyStep = 2000
)

// sizeOf is how many entries one counts as that is copied, with a value and a key of so many bytes.
func sizeOf(value, key int) int64 { return 1 + int64(value+key)/256 }

const beginning = int64(math.MinInt64)

// epochAt returns the position of the epoch that holds an instant.
func epochAt(epochs []epoch, at int64) int {
	return sort.Search(len(epochs), func(i int) bool { return epochs[i].start > at }) - 1
}

// end returns when an epoch ends; forever for the open one.
func (ix *index) end(i int) int64 {
	if i+1 < len(ix.epochs) {
		return ix.epochs[i+1].start
	}
	return forever
}

func (w *writer) insertPast(e *epoch, c change, since, until int64) error {
	_, err := w.integer(`INSERT INTO past(epoch, value, key, since, until, document) VALUES(?1, ?2, ?3, ?4, ?5, ?6)`, e.id, c.value, c.st.key, since, until, c.st.id)
	return err
}

// addInterval records an entry, in table entries if it has not ended, and in every epoch
// that it overlaps, except in the open one if it has not ended and that is not about to be cut.
func (w *writer) addInterval(c change) error {
	ix := c.ix
	since, until := int64(c.since), int64(c.until)
	open := until == forever
	if open {
		if _, err := w.integer(`INSERT INTO entries(idx, value, key, document, since) VALUES(?1, ?2, ?3, ?4, ?5)`, ix.id, c.value, c.st.key, c.st.id, since); err != nil {
			return err
		}
		ix.live++
		ix.dirty = true
	}
	for i := len(ix.epochs) - 1; i >= 0 && ix.end(i) > since; i-- {
		e := &ix.epochs[i]
		if e.start >= until || open && i == len(ix.epochs)-1 && !ix.copying {
			continue
		}
		stored := until
		if until >= ix.end(i) {
			stored = forever
			e.base++
		} else {
			e.closed++
		}
		if err := w.insertPast(e, c, since, stored); err != nil {
			return err
		}
		e.dirty, ix.dirty = true, true
	}
	return nil
}

// endOpen ends an entry: in the open epoch, and in closed ones if it ended before
// their end, which happens only if versions are loaded with times before the last cut.
func (w *writer) endOpen(c change) error {
	ix := c.ix
	since, until := int64(c.since), int64(c.until)
	last := len(ix.epochs) - 1
	e := &ix.epochs[last]
	if e.base > 0 { // it may have been copied
		if _, err := w.integer(`DELETE FROM past WHERE epoch = ?1 AND value = ?2 AND key = ?3 AND since = ?4`, e.id, c.value, c.st.key, since); err != nil {
			return err
		}
		e.base -= int64(w.Changes())
		e.dirty = true
	}
	if until > e.start {
		if err := w.insertPast(e, c, since, until); err != nil {
			return err
		}
		e.closed++
		e.dirty = true
	}
	ix.dirty = true
	for i := last - 1; i >= 0 && ix.end(i) > until && ix.end(i) > since; i-- {
		e := &ix.epochs[i]
		const at = ` WHERE epoch = ?1 AND value = ?2 AND key = ?3 AND since = ?4`
		var err error
		if e.start >= until {
			_, err = w.integer(`DELETE FROM past`+at, e.id, c.value, c.st.key, since)
		} else {
			_, err = w.integer(`UPDATE past SET until = ?5`+at, e.id, c.value, c.st.key, since, until)
			e.closed++
		}
		if err != nil {
			return err
		}
		e.base--
		e.dirty = true
	}
	return nil
}

// cut closes the open epoch of an index if it is too large, once all entries that continue
// are copied into it. It copies some of them.
func (w *writer) cut(coll *collection, ix *index) error {
	if w.copies <= 0 {
		return nil // other indexes come first
	}
	e := &ix.epochs[len(ix.epochs)-1]
	if !ix.copying {
		if e.closed <= max(w.store.opts.epochSlack, ix.live) {
			return nil
		}
		ix.copying, ix.copied = true, bound{value: []byte{}} // before all entries
	}
	const (
		next   = ` FROM entries WHERE idx = ?1 AND (value, key) > (?2, ?3)`
		copied = `INSERT OR IGNORE INTO past(epoch, value, key, since, until, document)
			SELECT ?4, value, key, since, 9223372036854775807, document` + next
	)
	entries, err := w.prepare(`SELECT value, key`+next+` ORDER BY value, key`, ix.id, ix.copied.value, ix.copied.key)
	if err != nil {
		return err
	}
	more := true
	for more && err == nil && w.copies > 0 {
		if more, err = entries.Step(); more {
			w.copies -= sizeOf(entries.ColumnLen(0), entries.ColumnLen(1))
		}
	}
	to := bound{value: w.bytes(entries, 0), key: entries.ColumnText(1)}
	if err := finish(entries, err); err != nil {
		return err
	}
	e.dirty = true
	if more {
		_, err = w.integer(copied+` AND (value, key) <= (?5, ?6)`, ix.id, ix.copied.value, ix.copied.key, e.id, to.value, to.key)
		e.base += int64(w.Changes())
		ix.copied = to
		return err
	}
	if _, err = w.integer(copied, ix.id, ix.copied.value, ix.copied.key, e.id); err != nil {
		return err
	}
	e.base += int64(w.Changes())
	ix.copying = false
	return w.newEpoch(ix, int64(coll.last)+1)
}

// oversized returns a closed epoch that is too large. A large load can make one so:
// it adds many entries to an epoch at once, or adds to the past.
func (w *writer) oversized() (coll *collection, ix *index, i int) {
	if w.stale {
		return nil, nil, 0
	}
	for _, coll := range w.store.collections {
		for _, ix := range coll.indexes {
			for i := range ix.epochs[:len(ix.epochs)-1] {
				if e := &ix.epochs[i]; !e.whole && e.closed > 2*max(w.store.opts.epochSlack, e.base) {
					return coll, ix, i
				}
			}
		}
	}
	return nil, nil, 0
}

// cutOversized cuts one epoch that is too large, and reports whether there was
// one. The writer calls it when it is idle, so that loads do not wait for it.
func (w *writer) cutOversized() bool {
	coll, ix, i := w.oversized()
	if ix == nil {
		return false
	}
	if err := w.transaction(func() error {
		smaller, err := w.cutClosed(ix, i)
		ix.epochs[i].whole = !smaller
		if err == nil {
			err = w.flushIndex(coll, ix)
		}
		return err
	}); err != nil {
		w.store.log.Error("cutting an epoch failed; reads of the past stay slower", "store", w.store.path, "error", err)
		return false
	}
	return true
}

// newEpoch inserts an empty epoch that starts at an instant.
func (w *writer) newEpoch(ix *index, start int64) error {
	if _, err := w.integer(`INSERT INTO epochs(idx, start) VALUES(?1, ?2)`, ix.id, start); err != nil {
		return err
	}
	i := epochAt(ix.epochs, start) + 1
	ix.epochs = append(ix.epochs, epoch{})
	copy(ix.epochs[i+1:], ix.epochs[i:])
	ix.epochs[i] = epoch{id: w.LastInsertRowID(), start: start}
	ix.dirty = true
	return nil
}

// cutClosed cuts a closed epoch in the middle of its changes. It reports whether both
// parts are smaller: not if all changes have one instant.
func (w *writer) cutClosed(ix *index, i int) (bool, error) {
	e, end := ix.epochs[i], ix.end(i)
	const changes = `(SELECT since AS t FROM past WHERE epoch = ?1 UNION ALL SELECT until FROM past WHERE epoch = ?1) WHERE t > ?2 AND t < ?3`
	n, err := w.integer(`SELECT count(*) FROM `+changes, e.id, e.start, end)
	if err != nil || n == 0 {
		return false, err
	}
	at, err := w.integer(`SELECT t FROM `+changes+` ORDER BY t LIMIT 1 OFFSET ?4`, e.id, e.start, end, n/2)
	if err != nil {
		return false, err
	}
	if err := w.newEpoch(ix, at); err != nil {
		return false, err
	}
	second := ix.epochs[i+1].id
	for _, query := range []string{
		`INSERT INTO past(epoch, value, key, since, until, document)
			SELECT ?2, value, key, since, until, document FROM past WHERE epoch = ?1 AND until > ?3`,
		`DELETE FROM past WHERE epoch = ?1 AND since >= ?3`,
		`UPDATE past SET until = 9223372036854775807 WHERE epoch = ?1 AND until >= ?3`,
	} {
		if _, err := w.integer(query, e.id, second, at); err != nil {
			return false, err
		}
	}
	for _, k := range []int{i, i + 1} {
		e := &ix.epochs[k]
		e.dirty = true
		if e.base, err = w.integer(`SELECT count(*) FROM past WHERE epoch = ?1 AND until = 9223372036854775807`, e.id); err != nil {
			return false, err
		}
		if e.closed, err = w.integer(`SELECT count(*) FROM past WHERE epoch = ?1 AND until < 9223372036854775807`, e.id); err != nil {
			return false, err
		}
	}
	// A cut that leaves one part as large as before must not be repeated.
	return ix.epochs[i].closed < e.closed && ix.epochs[i+1].closed < e.closed, nil
}
