package sqlitestore

import (
	"math"
	"sort"
)

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
// more than those that continue: at once, or after a large load when the writer is
// idle. So a read examines at most about twice the entries that it returns. Fewer
// entries are copied into a new epoch than had ended in the old one, so the space
// stays proportional to the number of changes. This is the time split of
// the time-split B-tree (Lomet and Salzberg, 1989).
//
// An entry that continues after a closed epoch has until = forever there.

// epochSlack is the number of ended entries that an epoch may hold in any case.
const epochSlack = 1000

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

// addInterval records an entry that has ended already, in every epoch that it
// overlaps.
func (w *writer) addInterval(c change) error {
	ix := c.ix
	since, until := int64(c.since), int64(c.until)
	for i := len(ix.epochs) - 1; i >= 0 && ix.end(i) > since; i-- {
		e := &ix.epochs[i]
		if e.start >= until {
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

// addOpen records an entry that has not ended in the closed epochs that it overlaps.
func (w *writer) addOpen(c change) error {
	ix := c.ix
	for i := len(ix.epochs) - 2; i >= 0 && ix.end(i) > int64(c.since); i-- {
		if err := w.insertPast(&ix.epochs[i], c, int64(c.since), forever); err != nil {
			return err
		}
		ix.epochs[i].base++
		ix.epochs[i].dirty, ix.dirty = true, true
	}
	return nil
}

// endOpen ends an entry: in the open epoch, and in closed ones if it ended before
// their end, which happens only if versions are loaded with times before the last cut.
func (w *writer) endOpen(c change) error {
	ix := c.ix
	since, until := int64(c.since), int64(c.until)
	last := len(ix.epochs) - 1
	if e := &ix.epochs[last]; until > e.start {
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

// cut closes the open epoch of an index if it is too large.
func (w *writer) cut(ix *index) error {
	if e := &ix.epochs[len(ix.epochs)-1]; e.closed > max(w.store.opts.epochSlack, ix.live) {
		return w.cutOpen(ix)
	}
	return nil
}

// oversized returns a closed epoch that is too large. A large load can make one so:
// it adds many entries to an epoch at once, or adds to the past.
func (w *writer) oversized() (ix *index, i int) {
	if w.stale {
		return nil, 0
	}
	for _, coll := range w.store.collections {
		for _, ix := range coll.indexes {
			for i := range ix.epochs[:len(ix.epochs)-1] {
				if e := &ix.epochs[i]; !e.whole && e.closed > 2*max(w.store.opts.epochSlack, e.base) {
					return ix, i
				}
			}
		}
	}
	return nil, 0
}

// cutOversized cuts one epoch that is too large, and reports whether there was
// one. The writer calls it when it is idle, so that loads do not wait for it.
func (w *writer) cutOversized() bool {
	ix, i := w.oversized()
	if ix == nil {
		return false
	}
	if err := w.transaction(func() error {
		smaller, err := w.cutClosed(ix, i)
		ix.epochs[i].whole = !smaller
		if err == nil {
			err = w.flushIndex(ix)
		}
		return err
	}); err != nil {
		w.store.log.Error("cutting an epoch failed; reads of the past stay slower", "store", w.store.path, "error", err)
		return false
	}
	w.store.checkpoints.wrote(epochSlack / pagesOfWrite)
	return true
}

// cutOpen closes the open epoch after the last entry that ended in it, and
// copies the entries that continue into it.
func (w *writer) cutOpen(ix *index) error {
	e := &ix.epochs[len(ix.epochs)-1]
	at, err := w.integer(`SELECT max(until) FROM past WHERE epoch = ?1`, e.id)
	if err != nil {
		return err
	}
	if _, err := w.integer(`INSERT INTO past(epoch, value, key, since, until, document)
		SELECT ?1, value, key, since, 9223372036854775807, document FROM entries WHERE idx = ?2 AND since < ?3`,
		e.id, ix.id, at); err != nil {
		return err
	}
	e.base, e.dirty = int64(w.Changes()), true
	return w.newEpoch(ix, at)
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
