package sqlitestore

import (
	"crypto/rand"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

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
