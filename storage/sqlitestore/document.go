package sqlitestore

import (
	"bytes"

	"github.com/asof/asof/storage/driver"
)

// state is what the writer knows about a document: its last version, and the
// entries that the indexes hold for it.
type state struct {
	coll    *collection
	key     string
	id      docID
	number  int64 // 0: it does not exist yet
	at      driver.Instant
	deleted bool
	stored  bool      // the document has a row
	entries [][]entry // for each index of the collection
	touched bool      // pending knows of it

	// What Load added and flushDocuments will write, and the number that the
	// document's row has until then. The versions are the caller's, whose numbers
	// may be 0: they have those that follow.
	unwritten []*driver.Version
	written   int64
}

// entry is one value that an index holds for a document, since an instant.
// since is known only for entries that are not in the file yet.
type entry struct {
	value  []byte
	since  driver.Instant
	stored bool
}

const (
	sqlState          = `SELECT id, number, at, deleted, data FROM documents WHERE collection = ?1 AND key = ?2`
	sqlInsertDocument = `INSERT INTO documents(id, number, at, op, deleted, author, message, grp, changed, collection, key, data)
		VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`
	sqlUpdateDocument = `UPDATE documents SET number = ?2, at = ?3, op = ?4, deleted = ?5, author = ?6, message = ?7,
		grp = ?8, changed = ?9, data = ?12 WHERE id = ?1 AND number = ?13`
	sqlInsertVersion = `INSERT INTO versions(id, document, at, op, deleted, author, message, grp, changed, collection, key, data)
		VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`
)

// state returns a document's state, from the cache or from the file.
func (w *writer) state(coll *collection, key string) (*state, error) {
	if st := w.cache.get(coll, key); st != nil {
		return st, nil
	}
	st, err := w.readState(coll, key)
	if err == nil {
		w.cache.put(st)
	}
	return st, err
}

func (w *writer) readState(coll *collection, key string) (*state, error) {
	st := &state{coll: coll, key: key, entries: make([][]entry, len(coll.indexes))}
	s, err := w.Prepare(sqlState)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, coll.id)
	s.BindText(2, key)
	row, err := s.Step()
	if err != nil || !row {
		return st, finish(s, err)
	}
	st.stored = true
	st.id = docID(s.ColumnInt64(0))
	st.number = s.ColumnInt64(1)
	st.at = driver.Instant(s.ColumnInt64(2))
	st.deleted = s.ColumnInt64(3) != 0
	data := w.bytes(s, 4)
	if err := finish(s, nil); err != nil {
		return nil, err
	}
	for i, values := range coll.valuesIn(&w.values, data) {
		for _, value := range values {
			st.entries[i] = append(st.entries[i], entry{value: bytes.Clone(value), stored: true})
		}
	}
	return st, nil
}

// writeDocument makes the document's row say what v says, which has a number, on
// condition that it still has the one before (0: no row). It reports whether it had.
func (w *writer) writeDocument(st *state, v *driver.Version, number, before int64) (bool, error) {
	query := sqlUpdateDocument
	if before == 0 {
		query = sqlInsertDocument
	}
	s, err := w.Prepare(query)
	if err != nil {
		return false, err
	}
	if err := w.bindVersion(s, v); err != nil {
		return false, err
	}
	s.BindInt64(1, int64(st.id))
	s.BindInt64(2, number)
	if before == 0 {
		s.BindInt64(10, st.coll.id)
		s.BindText(11, v.Key)
	} else {
		s.BindInt64(13, before)
	}
	_, err = s.Step()
	if err := finish(s, err); err != nil {
		return false, err
	}
	return w.Changes() == 1, nil
}

// writeVersions adds rows to the history: versions of one document, with numbers
// from first on.
func (w *writer) writeVersions(st *state, first int64, vs ...*driver.Version) error {
	s, err := w.Prepare(sqlInsertVersion)
	if err != nil {
		return err
	}
	// A statement that is reset keeps what is bound.
	s.BindInt64(2, int64(st.id))
	s.BindInt64(10, st.coll.id)
	s.BindText(11, st.key)
	for i, v := range vs {
		if err := w.bindVersion(s, v); err != nil {
			return err
		}
		s.BindInt64(1, st.id.version(first+int64(i)))
		_, err = s.Step()
		if err := finish(s, err); err != nil {
			return err
		}
	}
	return nil
}
