package sqlitestore

import (
	"context"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

const (
	sqlDocumentByKey = `SELECT ` + documentColumns + ` FROM documents d WHERE d.collection = ?1 AND d.key = ?2`
	sqlDocumentByID  = `SELECT ` + documentColumns + ` FROM documents d WHERE d.id = ?1`
	// These yield a version and the next row, whose time is when the version was
	// superseded if it is of the same document.
	sqlVersionByID = `SELECT ` + versionColumns + ` FROM versions v WHERE v.id >= ?1 ORDER BY v.id LIMIT 2`
	sqlVersionAt   = `SELECT ` + versionColumns + ` FROM versions v WHERE v.id >= (
			SELECT w.id FROM versions w INDEXED BY versions_at WHERE w.document = ?1 AND w.at <= ?2 ORDER BY w.at DESC LIMIT 1
		) ORDER BY v.id LIMIT 2`
)

// Get implements driver.Engine.
func (s *Store) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	coll := s.byName[collection]
	out, err := s.getAll(ctx, coll, refs, fields)
	if isBulk(err) {
		if err := s.indexed(ctx); err != nil {
			return nil, err
		}
		out, err = s.getAll(ctx, coll, refs, fields)
	}
	if err != nil {
		return nil, wrap(err, "reading "+collection)
	}
	return out, nil
}

func (s *Store) getAll(ctx context.Context, coll *collection, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	out := make([]*driver.Version, len(refs))
	if s.getCached(coll, refs, out) {
		return out, nil
	}
	c, err := s.readers.get(ctx)
	if err != nil {
		return nil, err
	}
	defer s.readers.release(c)
	for i, ref := range refs {
		if i%64 == 63 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		v, err := c.get(coll, ref, fields)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// getCached reads versions from the cache and reports whether all of them are there.
// A commit in between must not be visible in some of them and not in others.
func (s *Store) getCached(coll *collection, refs []driver.Ref, out []*driver.Version) bool {
	count := s.cached.current()
	if count == unsettled {
		return false
	}
	for i, ref := range refs {
		if out[i], _ = s.cached.find(documentKey{coll.id, ref.Key}, ref, count); out[i] == nil {
			return false
		}
	}
	return len(refs) < 2 || s.cached.count.Load() == count
}

// get reads one version from the cache or from the file.
func (c *conn) get(coll *collection, ref driver.Ref, fields []string) (*driver.Version, error) {
	k := documentKey{coll.id, ref.Key}
	known, id := c.cached.find(k, ref, c.count)
	if known != nil {
		return known, nil
	}
	v, id, err := c.lookUp(coll, ref, fields, id)
	if err == nil && v != nil && c.whole {
		c.cached.add(k, id, v, c.count)
	}
	return v, err
}

// lookUp reads a version from the file, and returns the row of its document. It reads
// the document's row first, which is enough for a current read, and the history
// only if that row is too new. If the row is given, it is known to be too new.
func (c *conn) lookUp(coll *collection, ref driver.Ref, fields []string, id docID) (*driver.Version, docID, error) {
	switch {
	case ref.Number > maxNumber:
		return nil, 0, nil
	case id == 0:
	case ref.Number > 0:
		v, err := c.versionByID(coll, id.version(ref.Number), fields)
		return v, id, err
	default:
		v, err := c.versionAt(coll, id, ref.At, fields)
		return v, id, err
	}
	s, err := c.Prepare(sqlDocumentByKey)
	if err != nil {
		return nil, 0, err
	}
	s.BindInt64(1, coll.id)
	s.BindText(2, ref.Key)
	row, err := s.Step()
	if err != nil || !row {
		return nil, 0, finish(s, err)
	}
	doc, number, at := docID(s.ColumnInt64(colID)), s.ColumnInt64(colNumber), driver.Instant(s.ColumnInt64(colAt))
	if ref.Number == number || ref.Number == 0 && at <= ref.At {
		v, err := c.version(s, coll.name, true, fields)
		return v, doc, finish(s, err)
	}
	c.cached.seen(documentKey{coll.id, ref.Key}, doc, at)
	var v *driver.Version
	switch {
	case ref.Number == 0:
		v, err = c.versionAt(coll, doc, ref.At, fields)
	case ref.Number < 0 || ref.Number > number:
	default:
		v, err = c.versionByID(coll, doc.version(ref.Number), fields)
	}
	return v, doc, finish(s, err)
}

// versionAt reads a document's version as of an instant from the history; nil if
// there was none. It fails with errBulk if the index does not exist.
func (c *conn) versionAt(coll *collection, doc docID, at driver.Instant, fields []string) (*driver.Version, error) {
	s, err := c.prepareIndexed(sqlVersionAt)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, int64(doc))
	s.BindInt64(2, int64(at))
	row, err := s.Step()
	if err != nil || !row {
		return nil, finish(s, err)
	}
	v, err := c.historic(s, coll, fields)
	return v, finish(s, err)
}

// versionByID reads a version from the history by its row; nil if there is none.
func (c *conn) versionByID(coll *collection, id int64, fields []string) (*driver.Version, error) {
	s, err := c.Prepare(sqlVersionByID)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, id)
	row, err := s.Step()
	if err != nil || !row || s.ColumnInt64(colID) != id {
		return nil, finish(s, err)
	}
	v, err := c.historic(s, coll, fields)
	return v, finish(s, err)
}

// historic copies a statement's current row of the history. The statement yields the
// following row next.
func (c *conn) historic(s *sqlite.Stmt, coll *collection, fields []string) (*driver.Version, error) {
	v, err := c.version(s, coll.name, true, fields)
	if err != nil {
		return nil, err
	}
	doc := docOfVersion(s.ColumnInt64(colID))
	row, err := s.Step()
	if row && docOfVersion(s.ColumnInt64(colID)) == doc {
		v.SupersededAt = driver.Instant(s.ColumnInt64(colAt))
	}
	return v, err
}
