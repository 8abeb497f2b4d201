package sqlitestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

// How many versions a watcher reads at first and at most at a time, after how
// many bytes it stops, and how many rows of the log it passes over meanwhile.
const (
	firstArrivals = 16
	maxArrivals   = 256
	arrivalBytes  = 1 << 20
	passedRows    = 4096
)

// arrivals reads versions in the order of arrival.
type arrivals struct {
	store   *Store
	colls   []*collection
	at      turn // what is behind it is not read yet
	stretch int
}

type arrived struct {
	turn    turn
	version *driver.Version
}

// read returns the next versions. more is false when, at the time of reading,
// there were no others.
func (r *arrivals) read(ctx context.Context) (list []arrived, more bool, err error) {
	err = r.store.reading(ctx, func(c *conn) error {
		list, more, err = r.readFrom(c)
		return err
	})
	return list, more, err
}

func (r *arrivals) readFrom(c *conn) (list []arrived, more bool, err error) {
	found := &finding{conn: c, colls: r.colls, at: r.at, most: r.stretch}
	if err := found.run(); err != nil {
		return nil, false, err
	}
	r.stretch = min(2*r.stretch, maxArrivals)
	size := 0
	for _, f := range found.list {
		coll := r.store.byID[int64(docOfVersion(f.row))>>sequenceBits]
		if coll == nil {
			return nil, false, internalf("version %d is of no collection", f.row)
		}
		v, err := c.versionByID(coll, f.row, nil)
		if err != nil {
			return nil, false, err
		}
		if v == nil {
			return nil, false, internalf("%s: version %d, which has arrived, is missing", coll.name, f.row)
		}
		list = append(list, arrived{f.turn, v})
		r.at = f.turn
		if size += len(v.Data); size >= arrivalBytes {
			return list, true, nil
		}
	}
	r.at = found.at
	return list, !found.ended, nil
}

// finding looks for the rows that arrived behind a turn, in one snapshot.
type finding struct {
	*conn
	colls []*collection
	at    turn
	most  int // rows
	list  []foundRow
	ended bool // there are no others
}

type foundRow struct {
	turn turn
	row  int64
}

func (f *finding) run() error {
	lates, err := f.integer(`SELECT count(*) FROM (SELECT 1 FROM late LIMIT 1)`)
	if err != nil {
		return err
	}
	for len(f.list) < f.most {
		if f.at.load > 0 && f.at.at == 0 {
			if full, err := f.inLoad(); err != nil || full || len(f.list) == f.most {
				return err
			}
		}
		low, err := f.integer(`SELECT latest FROM loads WHERE id = ?1`, f.at.load)
		if err != nil {
			return err
		}
		low = max(low, f.at.at)
		high, last := forever, true
		s, err := f.Prepare(`SELECT at FROM loads WHERE id = ?1`)
		if err != nil {
			return err
		}
		s.BindInt64(1, f.at.load+1)
		row, err := s.Step()
		if row {
			high, last = s.ColumnInt64(0), false
		}
		if err := finish(s, err); err != nil {
			return err
		}
		if low < high {
			whole, err := f.commits(low, high, lates > 0)
			if err != nil {
				return err
			}
			if !whole {
				return nil
			}
		}
		if last {
			f.ended = true
			return nil
		}
		f.at = turn{load: f.at.load + 1}
	}
	return nil
}

// inLoad takes the rest of a load, as much as there is room for; full says that
// there was not enough.
func (f *finding) inLoad() (full bool, err error) {
	s, err := f.Prepare(`SELECT runs FROM loads WHERE id = ?1`)
	if err != nil {
		return false, err
	}
	s.BindInt64(1, f.at.load)
	row, err := s.Step()
	var runs []rowRun
	if row && err == nil {
		runs, err = decodeRuns(f.raw(s, 0))
	}
	if err := finish(s, err); err != nil {
		return false, err
	}
	wanted := make(map[int64]bool, len(f.colls))
	for _, coll := range f.colls {
		wanted[coll.id] = true
	}
	for _, r := range runs {
		if r.last <= f.at.row || !wanted[int64(docOfVersion(r.first))>>sequenceBits] {
			continue
		}
		for id := max(r.first, f.at.row+1); id <= r.last; id++ {
			if len(f.list) == f.most {
				return true, nil
			}
			f.at.row = id
			f.list = append(f.list, foundRow{f.at, id})
		}
	}
	if n := len(runs); n > 0 {
		f.at.row = max(f.at.row, runs[n-1].last)
	}
	return false, nil
}

// commits takes the commits in (low, high], as many as there is room for.
// whole says that there are no others.
func (f *finding) commits(low, high int64, lates bool) (whole bool, err error) {
	room := f.most - len(f.list)
	var found []foundRow
	until := high // every collection was read up to here
	for _, coll := range f.colls {
		s, err := f.prepareIndexed(`SELECT at, id FROM versions INDEXED BY versions_log WHERE collection = ?1 AND at > ?2 AND at <= ?3 ORDER BY at`)
		if err != nil {
			return false, err
		}
		s.BindInt64(1, coll.id)
		s.BindInt64(2, low)
		s.BindInt64(3, until)
		n, passed, before := 0, 0, low
		row, err := s.Step()
		for ; row && err == nil; row, err = s.Step() {
			at, id := s.ColumnInt64(0), s.ColumnInt64(1)
			if passed++; passed > passedRows && at > before {
				until = before
				break
			}
			before = at
			late := false
			if lates {
				if late, err = f.isLate(id); err != nil {
					break
				}
			}
			if late {
				continue
			}
			found = append(found, foundRow{turn{load: f.at.load, at: at}, id})
			if n++; n == room { // commits do not share instants
				until = at
				break
			}
		}
		if err := finish(s, err); err != nil {
			return false, err
		}
	}
	found = slices.DeleteFunc(found, func(r foundRow) bool { return r.turn.at > until })
	slices.SortFunc(found, func(a, b foundRow) int { return cmp.Compare(a.turn.at, b.turn.at) })
	if len(found) > room {
		found = found[:room]
	}
	f.list = append(f.list, found...)
	if n := len(found); n == room {
		f.at = found[n-1].turn
		return false, nil
	}
	if until < high {
		f.at = turn{load: f.at.load, at: until}
		return false, nil
	}
	if n := len(found); n > 0 {
		f.at = found[n-1].turn
	}
	return true, nil
}

// isLate reports whether a row is of a loaded version among commits.
func (f *finding) isLate(id int64) (bool, error) {
	last, err := f.integer(`SELECT last FROM late WHERE first <= ?1 ORDER BY first DESC LIMIT 1`, id)
	return last >= id, err
}

// watchSchema is what format 2 added, see watch.go: the store's identity, which
// is part of positions, and what tells the order of arrival.
const watchSchema = `
CREATE TABLE IF NOT EXISTS store(
	id        BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS loads(
	id        INTEGER PRIMARY KEY,
	at        INTEGER NOT NULL,
	latest    INTEGER NOT NULL,
	runs      BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS late(
	first     INTEGER PRIMARY KEY,
	last      INTEGER NOT NULL
);
`

// prepareWatch makes a file able to tell the order of arrival, and reads how far
// that has got. What a file of format 1 holds counts as loaded at once. It is
// part of the transaction in which the store opens.
func (s *Store) prepareWatch() error {
	w := s.writer
	for _, query := range splitStatements(watchSchema) {
		if err := sqlitex.ExecuteTransient(w.Conn, query, nil); err != nil {
			return err
		}
	}
	known, err := s.readID()
	if err != nil {
		return err
	}
	if !known {
		if err := w.beginArrivals(); err != nil {
			return err
		}
		if _, err := s.readID(); err != nil {
			return err
		}
	}
	return s.readArrivals()
}

// readID reads the store's identity, and reports whether it has one.
func (s *Store) readID() (bool, error) {
	st, err := s.writer.Prepare(`SELECT id FROM store`)
	if err != nil {
		return false, err
	}
	row, err := st.Step()
	if row && err == nil {
		if b := s.writer.bytes(st, 0); copy(s.id[:], b) != len(s.id) || len(b) != len(s.id) {
			err = internalf("the store's identity is damaged")
		}
	}
	return row, finish(st, err)
}

// beginArrivals gives a file its identity, and notes what is in it as loaded.
func (w *writer) beginArrivals() error {
	var id storeID
	_, _ = rand.Read(id[:]) // it never fails
	st, err := w.Prepare(`INSERT INTO store(id) VALUES(?1)`)
	if err != nil {
		return err
	}
	st.BindBytes(1, id[:])
	_, err = st.Step()
	if err := finish(st, err); err != nil {
		return err
	}
	documents, err := w.Prepare(`SELECT id, number FROM documents ORDER BY id`)
	if err != nil {
		return err
	}
	if err := w.rows(documents, func(st *sqlite.Stmt) error {
		return w.addRun(docID(st.ColumnInt64(0)), 1, st.ColumnInt64(1))
	}); err != nil {
		return err
	}
	if err := w.flushRuns(); err != nil {
		return err
	}
	return sqlitex.ExecuteTransient(w.Conn, pragma("user_version", formatVersion), nil)
}

// readArrivals reads how far the order of arrival has got. Commits are later
// than all that was loaded before them, so the latest time in the store tells
// whether there was one after the last load.
func (s *Store) readArrivals() error {
	var latest driver.Instant
	for _, coll := range s.collections {
		latest = max(latest, coll.last)
	}
	state := arrivingState{live: int64(latest), end: turn{at: int64(latest)}}
	st, err := s.writer.Prepare(`SELECT id, at, latest, runs FROM loads ORDER BY id DESC LIMIT 1`)
	if err != nil {
		return err
	}
	if err := s.writer.rows(st, func(st *sqlite.Stmt) error {
		state.end.load = st.ColumnInt64(0)
		if int64(latest) > st.ColumnInt64(2) {
			return nil
		}
		runs, err := decodeRuns(s.writer.raw(st, 3))
		if err == nil && len(runs) == 0 {
			err = internalf("the record of a load is empty")
		}
		if err != nil {
			return err
		}
		state.live = st.ColumnInt64(1)
		state.end = turn{load: state.end.load, row: runs[len(runs)-1].last}
		return nil
	}); err != nil {
		return err
	}
	s.writer.arriving = arriving{stored: state, next: state}
	s.feed.move(state.end, nil)
	return nil
}

// checkArrivals compares what a watch from the beginning would be told with the
// number of versions.
func (s *Store) checkArrivals(c *conn, report func(problem string)) error {
	versions := int64(0)
	n, err := c.integer(`SELECT sum(versions) FROM collections`)
	if err != nil {
		return err
	}
	f := &finding{conn: c, colls: s.collections, most: maxArrivals}
	last := map[docID]int64{} // rows, of the documents of one load or stretch
	for !f.ended {
		f.list = f.list[:0]
		if err := f.run(); err != nil {
			return err
		}
		clear(last)
		for _, r := range f.list {
			doc := docOfVersion(r.row)
			if last[doc] >= r.row {
				report("the order of arrival has the versions of a document out of order")
			}
			last[doc] = r.row
		}
		versions += int64(len(f.list))
	}
	if versions != n {
		report(fmt.Sprintf("%d versions have arrived, but there are %d", versions, n))
	}
	return nil
}
