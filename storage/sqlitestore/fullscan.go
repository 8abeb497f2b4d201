package sqlitestore

import (
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

const sqlScan = `SELECT ` + documentColumns + ` FROM documents WHERE id > ?1 AND id < ?2 ORDER BY id`

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

// scan looks at all documents of the collection, in the order of the file, and calls
// f for every one that was there at the instant and that the filter accepts, with
// the row of its version. It goes on in a newer snapshot where its own is asked for.
func (r *run) scan(f visit) error {
	last := docOf(r.coll.id, 0)
	for {
		ended, err := r.scanFrom(&last, f)
		if ended || err != nil {
			return err
		}
		if err := r.renew(false); err != nil {
			return err
		}
	}
}

// scanFrom scans behind a document until the snapshot is asked for, and notes how
// far it came.
func (r *run) scanFrom(last *docID, f visit) (ended bool, err error) {
	s, err := r.c.Prepare(sqlScan)
	if err != nil {
		return false, err
	}
	s.BindInt64(1, int64(*last))
	s.BindInt64(2, int64(docOf(r.coll.id+1, 0)))
	for err == nil {
		var more bool
		if more, err = s.Step(); err != nil || !more {
			return true, finish(s, err)
		}
		*last = docID(s.ColumnInt64(colID))
		if err = r.look(s, *last, f); err == nil {
			err = r.poll()
		}
		if r.isAsked() {
			break
		}
	}
	return false, finish(s, err)
}

// look calls f for the document that a statement stands on.
func (r *run) look(s *sqlite.Stmt, doc docID, f visit) error {
	at, err := r.atInstant(s)
	if err != nil {
		return err
	}
	if at == nil {
		r.rows++
		return nil
	}
	if r.matches(row{s: at}) {
		_, err = f(row{s: at}, doc)
	}
	if at != s {
		err = finish(at, err)
	}
	return err
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
