package sqlitestore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
)

// A large load into an empty store goes without the two indexes of table
// versions. They are made at its end, which is when something wants them: a
// read of the past, the log, a commit, an idle moment or Close. An index that
// is sorted first and then written costs less than half of one that grows in
// no order of its own, and a load does not wait for its pages.
//
// The indexes are dropped in the transaction that loads the first versions.
// A file that is opened after a crash is as in the middle of the load.

// bulkVersions is how many versions a call of Load must bring to be the
// beginning of a large load.
const bulkVersions = 4096

// bulkCache is the writer's page cache meanwhile, in KiB: what one call of Load
// touches stays in memory until it is committed.
const bulkCache = 16 << 10

// sortCache is its page cache while the indexes are made, in KiB. SQLite sorts as
// much in memory as a cache may have, and the rest in files.
const sortCache = 64 << 10

// errBulk says that the indexes of versions are not there. Whoever meets it
// lets go of what it holds, has them made (see indexed), and begins again.
var errBulk = errors.New("the indexes of a large load are yet to be made")

// isBulk tells errBulk, and that a statement sees the file as it was before the
// indexes were made, or after they went.
func isBulk(err error) bool {
	return errors.Is(err, errBulk) || err != nil && strings.Contains(err.Error(), "no such index: versions_")
}

// bulk is set before the indexes go, and cleared when they are back.
type bulk struct{ atomic.Bool }

// beginBulk drops the indexes if a load of so many versions is the first that
// the store holds. It is part of the load's transaction.
func (w *writer) beginBulk(versions int) error {
	if versions < w.store.opts.bulkVersions || w.store.bulk.Load() {
		return nil
	}
	if w.store.versions() > 0 {
		return nil
	}
	w.store.bulk.Store(true)
	for _, query := range []string{"DROP INDEX versions_at", "DROP INDEX versions_log"} {
		if err := w.exec(query); err != nil {
			return err
		}
	}
	return w.exec(pragma("cache_size", -bulkCache))
}

// Limits of endBulk: how many versions are sorted in memory where there is no
// room for temporary files, and for how long a failure is not tried again, since
// on a full disk each try can take minutes.
const (
	sortedInMemory = 2_000_000
	bulkPause      = time.Minute
)

// endBulk makes the indexes if they are not there. The writer calls it between
// two transactions.
func (w *writer) endBulk() error {
	if !w.store.bulk.Load() {
		return nil
	}
	if w.bulkFailed != nil && w.store.opts.Clock().Sub(w.bulkTried).Abs() < bulkPause {
		return w.bulkFailed
	}
	// What is sorted should not have to fit in memory.
	err := w.makeIndexes("FILE")
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCantOpen, sqlite.ResultIOErr, sqlite.ResultFull:
		if w.store.versions() <= sortedInMemory {
			err = w.makeIndexes("MEMORY") // perhaps there is no place for temporary files
		}
	default:
	}
	if err == nil {
		w.store.bulk.Store(false)
		w.store.checkpoints.wrote(w.store.opts.softLog / pagesOfWrite)
	}
	err = errors.Join(err, w.exec("PRAGMA temp_store = MEMORY"), w.exec(pragma("cache_size", -pageCache)))
	w.bulkFailed, w.bulkTried = err, w.store.opts.Clock()
	return err
}

// makeIndexes makes the indexes that are not there, each in a transaction of its
// own, and sorts in temporary files or in memory.
func (w *writer) makeIndexes(temporary string) error {
	for _, query := range []string{"PRAGMA temp_store = " + temporary, pragma("cache_size", -sortCache)} {
		if err := w.exec(query); err != nil {
			return err
		}
	}
	for _, query := range versionIndexes {
		if err := w.transaction(func() error { return w.exec(query) }); err != nil {
			return err
		}
	}
	return nil
}

// versions counts all that the collections hold.
func (s *Store) versions() (n int64) {
	for _, coll := range s.collections {
		n += coll.versions
	}
	return n
}

// prepareIndexed prepares a statement that needs the indexes of versions.
func (c *conn) prepareIndexed(query string) (*sqlite.Stmt, error) {
	if c.bulk.Load() {
		return nil, errBulk
	}
	return c.Prepare(query)
}

// reading calls f with a connection, once more if that met errBulk.
func (s *Store) reading(ctx context.Context, f func(c *conn) error) error {
	once := func() error {
		c, err := s.readers.get(ctx)
		if err != nil {
			return err
		}
		defer s.readers.put(c)
		return f(c)
	}
	err := once()
	if isBulk(err) {
		if err = s.indexed(ctx); err == nil {
			err = once()
		}
	}
	return err
}

// findBulk notices that the indexes are not there: the program was killed in the
// middle of a large load. They are made as after a load, so that a store of any
// size opens at once.
func (w *writer) findBulk() error {
	n, err := w.integer(`SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name IN ('versions_at', 'versions_log')`)
	w.store.bulk.Store(n < int64(len(versionIndexes)))
	return err
}

// indexed makes sure that the indexes of versions are there.
func (s *Store) indexed(ctx context.Context) error {
	if !s.bulk.Load() {
		return nil
	}
	return s.writer.submit(&request{ctx: ctx, run: s.writer.endBulk})
}
