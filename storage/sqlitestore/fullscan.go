package sqlitestore

import (
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

const (
	sqlScan            = `SELECT ` + documentColumns + ` FROM documents WHERE id >= ?1 AND id < ?2`
	sqlKeyScan         = `SELECT ` + documentColumns + ` FROM documents INDEXED BY documents_key WHERE collection = ?1 AND key >= ?2 ORDER BY key`
	sqlKeyScanBackward = `SELECT ` + documentColumns + ` FROM documents INDEXED BY documents_key WHERE collection = ?1 AND key < ?2 ORDER BY key DESC`
	sqlKeyScanEnd      = `SELECT ` + documentColumns + ` FROM documents INDEXED BY documents_key WHERE collection = ?1 ORDER BY key DESC`
)

// atInstant goes from a document's row to the row that was current at the
// query's instant: the same one, or one of the history. It returns nil where
// there was no document then. Where the returned statement is not s, the
// caller resets it.
func (r *run) atInstant(s *sqlite.Stmt) (*sqlite.Stmt, error) {
	if r.live || driver.Instant(s.ColumnInt64(colAt)) <= r.at {
		if s.ColumnInt64(colDeleted) != 0 {
			return nil, nil
		}
		return s, nil
	}
	return r.inHistory(docID(s.ColumnInt64(colID)))
}

// inHistory goes to the row of the history that was current at the query's
// instant; nil where there was no document then.
func (r *run) inHistory(doc docID) (*sqlite.Stmt, error) {
	h, err := r.c.prepareIndexed(sqlVersionAt)
	if err != nil {
		return nil, err
	}
	h.BindInt64(1, int64(doc))
	h.BindInt64(2, int64(r.at))
	row, err := h.Step()
	if err != nil || !row || h.ColumnInt64(colDeleted) != 0 {
		return nil, finish(h, err)
	}
	return h, nil
}

// eachUntil calls f for every document of a statement over documents that was
// there at the instant and that the filter accepts, with the row of its
// version. It stops when f returns false, or before a document at which stop
// returns true.
func (r *run) eachUntil(s *sqlite.Stmt, f visit, stop func() bool) error {
	more, err := s.Step()
	for ; more && err == nil; more, err = s.Step() {
		if err = r.poll(); err != nil || stop() {
			break
		}
		var at *sqlite.Stmt
		if at, err = r.atInstant(s); err != nil {
			break
		}
		if at == nil {
			r.rows++
			continue
		}
		goOn := true
		if r.matches(row{s: at}) {
			goOn, err = f(row{s: at}, docID(s.ColumnInt64(colID)))
		}
		if at != s {
			err = finish(at, err)
		}
		if !goOn || err != nil {
			break
		}
	}
	return finish(s, err)
}

// scan looks at all documents of the collection, in the order of the file.
func (r *run) scan(f visit) error {
	s, err := r.c.Prepare(sqlScan)
	if err != nil {
		return err
	}
	s.BindInt64(1, int64(docOf(r.coll.id, 0)))
	s.BindInt64(2, int64(docOf(r.coll.id+1, 0)))
	return r.eachUntil(s, f, func() bool { return false })
}

// collect adds the documents of a scan to a page.
func (r *run) collect(t *top) visit {
	var c candidate
	return func(at row, doc docID) (bool, error) {
		r.place(&c, at)
		c.doc, c.version = doc, 0
		if at.kept == nil {
			if id := at.s.ColumnInt64(colID); id != int64(doc) {
				c.version = id
			}
		}
		t.add(&c)
		return true, nil
	}
}

// scanPage answers the query by looking at all documents.
func (r *run) scanPage() ([]*driver.Version, error) {
	t := &top{r: r, limit: r.q.Limit}
	if err := r.scan(r.collect(t)); err != nil {
		return nil, err
	}
	return t.versions()
}
