package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// Load implements driver.Engine. The versions of one call are written in one
// transaction, in the order of the file and not of the call, so that each page is
// written once. A document's row and the indexes are written for the last state only.
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	var result driver.LoadResult
	if len(vs) == 0 {
		return result, nil
	}
	if err := s.checkWritable(); err != nil {
		return result, err
	}
	err := s.writer.submit(&request{ctx: ctx, run: func() error {
		w := s.writer
		var instant driver.Instant // of the load; 0: it has none yet
		defer func() {
			if instant != 0 {
				s.clock.End()
			}
		}()
		var latest driver.Instant
		now := s.clock.Present()
		begin := true
		load := func() error {
			result = driver.LoadResult{}
			if begin {
				if err := w.beginBulk(len(vs)); err != nil {
					return err
				}
			}
			for i := range vs {
				v := &vs[i]
				if i%256 == 255 && ctx.Err() != nil {
					return ctx.Err()
				}
				added, err := w.load(s.byName[v.Collection], v, now)
				if err != nil {
					if driver.CodeOf(err) == driver.CodeInvalid {
						return &driver.LoadError{Index: i, Err: err}
					}
					return err
				}
				if added {
					result.Added++
					latest = max(latest, v.RecordedAt)
				} else {
					result.Skipped++
				}
			}
			if err := w.flushAdded(); err != nil || result.Added == 0 {
				return err
			}
			if instant == 0 { // as late as possible: until the load is committed, Now does not advance
				s.clock.Begin()
				instant = s.clock.Next()
			}
			_, err := w.integer(`UPDATE loaded SET at = ?1`, instant)
			return err
		}
		err := w.transaction(load)
		if errors.Is(err, errBulk) {
			begin = false
			if err = w.endBulk(); err == nil {
				err = w.transaction(load)
			}
		}
		if err == nil {
			s.clock.Saw(latest)
			if result.Added > 0 {
				s.loaded.Store(int64(instant))
			}
		}
		return err
	}})
	if err != nil {
		return driver.LoadResult{}, wrap(err, "loading versions")
	}
	return result, nil
}

// load adds one version; false if it is in the store already.
func (w *writer) load(coll *collection, in *driver.Version, now driver.Instant) (added bool, err error) {
	st, err := w.state(coll, in.Key)
	if err != nil {
		return false, err
	}
	if st.number > 0 && in.RecordedAt <= st.at {
		return false, w.sameAsStored(st, in)
	}
	if in.RecordedAt > now {
		return false, invalidf("%s %q: %s is in the future", in.Collection, in.Key, in.RecordedAt)
	}
	if st.number >= maxNumber {
		return false, invalidf("%s %q has %d versions, the most that this store can hold of one document", in.Collection, in.Key, st.number)
	}
	if in.Number != 0 && in.Number != st.number+1 {
		return false, invalidf("%s %q: version %d cannot follow version %d", in.Collection, in.Key, in.Number, st.number)
	}
	numbered := *in
	numbered.Number = st.number + 1
	sealed, err := seal.Follow(st.seal, &numbered)
	if err != nil {
		return false, invalidf("%s %q: version %d %w", in.Collection, in.Key, numbered.Number, err)
	}
	if st.id == 0 {
		if st.id, err = w.newDocument(coll); err != nil {
			return false, err
		}
	}
	st.seal = sealed
	w.added = append(w.added, loadedVersion{st, in, numbered.Number, sealed})
	w.setCurrent(st, numbered.Number, in)
	return true, nil
}

// sameAsStored returns nil if a version that is not after the document's last is in
// the store with the same content, else an error.
func (w *writer) sameAsStored(st *state, in *driver.Version) error {
	if w.store.bulk.Load() {
		return errBulk
	}
	if err := w.flushAdded(); err != nil {
		return err
	}
	there, err := w.versionAt(st.coll, st.id, in.RecordedAt, nil)
	if err != nil {
		return err
	}
	switch {
	case there == nil || there.RecordedAt != in.RecordedAt:
		return invalidf("%s %q: %s is not after the last version, %d of %s", in.Collection, in.Key, in.RecordedAt, st.number, st.at)
	case (in.Number == 0 || in.Number == there.Number) && seal.Same(there, in):
		return nil
	case in.Number != 0 && in.Number != there.Number,
		in.Deleted != there.Deleted, !bytes.Equal(in.Data, there.Data),
		in.Author != there.Author, in.Message != there.Message, in.Group != there.Group:
		return invalidf("%s %q: version %d of %s is in the store with other content", in.Collection, in.Key, there.Number, there.RecordedAt)
	}
	return nil
}

// loadedVersion is a version that Load added. It is the caller's: its own number may be 0.
type loadedVersion struct {
	st      *state
	version *driver.Version
	number  int64
	seal    []byte
}

// flushAdded writes the versions that Load added and the rows of their documents.
func (w *writer) flushAdded() error {
	all, before := w.added, int64(0)
	slices.SortFunc(all, func(a, b loadedVersion) int { return cmp.Compare(a.st.id.version(a.number), b.st.id.version(b.number)) })
	for i, a := range all {
		if i == 0 || all[i-1].st != a.st {
			before = a.number - 1
		}
		if err := w.writeVersion(a.st, a.version, a.number, a.seal); err != nil {
			return err
		}
		if i+1 < len(all) && all[i+1].st == a.st {
			continue
		}
		won, err := w.writeDocument(a.st, a.version, a.number, before, a.seal)
		if err != nil {
			return err
		}
		if !won {
			return internalf("%s %q is not at version %d, which the store's own writer wrote; is another program writing to the file?", a.st.coll.name, a.st.key, before)
		}
		a.st.stored = true
	}
	clear(all)
	w.added = all[:0]
	return nil
}

// errBulk is the error of a load that needs the indexes of versions where they do not exist.
var errBulk = errors.New("the indexes of a large load are yet to be made")

// A large load into an empty store runs without the two indexes of table versions.
// They are created when they are first needed: by a read of the past, the log or a
// commit, when the writer is idle, or by Close. Creating an index from sorted rows
// costs less than half of inserting them in random order.
//
// The indexes are dropped in the transaction that loads the first versions.
// If the program was killed, the next one continues as in the middle of the load.

// bulkVersions is the number of versions in a call of Load that begins a large load.
const bulkVersions = 4096

// bulkCache is the writer's page cache during a large load, in KiB: the pages that
// one call of Load writes stay in memory until it is committed. While the indexes are created
// SQLite sorts as much in memory as the cache may hold, which takes three times as much while
// it grows, and the rest in files.
const bulkCache = 16 << 10

// bulk is set before the indexes are dropped, and cleared when they exist again.
type bulk struct{ atomic.Bool }

// beginBulk drops the indexes if a load is large and the store is empty. It is part
// of the load's transaction.
func (w *writer) beginBulk(versions int) error {
	if versions < w.store.opts.bulkVersions || w.store.bulk.Load() {
		return nil
	}
	if w.store.versions() > 0 {
		return nil
	}
	w.store.bulk.Store(true)
	w.store.grouped.Store(false)
	w.grouping = true
	for _, query := range []string{"DROP INDEX versions_at", "DROP INDEX versions_log", "DROP INDEX IF EXISTS versions_group"} {
		if err := w.exec(query); err != nil {
			return err
		}
	}
	return w.exec(pragma("cache_size", -bulkCache))
}

// Limits of endBulk: the most versions that are sorted in memory if there is no
// room for temporary files, and the time until a failure is tried again: on a full
// disk each try can take minutes.
const (
	sortedInMemory = 2_000_000
	bulkPause      = time.Minute
)

// endBulk creates the indexes if they do not exist. The writer calls it between
// two transactions.
func (w *writer) endBulk() error {
	if !w.store.bulk.Load() {
		return nil
	}
	if w.bulkFailed != nil && w.store.opts.Clock().Sub(w.bulkTried).Abs() < bulkPause {
		return w.bulkFailed
	}
	err := w.makeIndexes(versionIndexes...)
	if err == nil {
		w.store.bulk.Store(false)
	}
	w.bulkFailed, w.bulkTried = err, w.store.opts.Clock()
	return err
}

// mostGrouped is how many versions there are at most where the index of groups is made: no other write
// is made meanwhile, for some 4 s.
const mostGrouped = 1_000_000

// indexGroups creates the index of groups if it is to be made, and tries it once. The writer calls it
// when it is idle.
func (w *writer) indexGroups() {
	if !w.grouping || w.store.versions() > mostGrouped {
		return
	}
	w.grouping = false
	err := w.makeIndexes(groupIndex)
	w.store.grouped.Store(err == nil)
	if err != nil {
		w.store.log.Warn("the index of imported change groups was not made; they are looked for in the whole history until the store is opened again", "store", w.store.path, "error", err)
	}
}

// makeIndexes creates the missing ones of some indexes.
func (w *writer) makeIndexes(queries ...string) error {
	// The rows may not fit in memory.
	err := w.sortIndexes("FILE", queries)
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCantOpen, sqlite.ResultIOErr, sqlite.ResultFull:
		if w.store.versions() <= sortedInMemory {
			err = w.sortIndexes("MEMORY", queries) // there may be no room for temporary files
		}
	default:
	}
	if err == nil {
		w.store.checkpoints.wrote(w.store.opts.softLog)
	}
	// SQLite's caches have one limit together: the pages that the writer has beyond its own would take all of the readers'.
	return errors.Join(err, w.exec("PRAGMA temp_store = MEMORY"), w.exec(pragma("cache_size", -pageCache)), w.exec("PRAGMA shrink_memory"))
}

// sortIndexes creates each in its own transaction, and sorts in temporary files or in memory.
func (w *writer) sortIndexes(temporary string, queries []string) error {
	for _, query := range []string{"PRAGMA temp_store = " + temporary, pragma("cache_size", -bulkCache)} {
		if err := w.exec(query); err != nil {
			return err
		}
	}
	for _, query := range queries {
		if err := w.transaction(func() error { return w.exec(query) }); err != nil {
			return err
		}
	}
	return nil
}

// versions returns the number of versions in all collections.
func (s *Store) versions() (n int64) {
	for _, coll := range s.collections {
		n += coll.versions
	}
	return n
}

// findBulk sets bulk if the indexes do not exist, because the program was killed in
// a large load. They are created as after a load, so that opening takes no longer.
func (w *writer) findBulk() error {
	n, err := w.integer(`SELECT count(*) FROM sqlite_schema WHERE name IN ('versions_at', 'versions_log')`)
	if err != nil {
		return err
	}
	w.store.bulk.Store(n < int64(len(versionIndexes)))
	n, err = w.integer(`SELECT count(*) FROM sqlite_schema WHERE name = 'versions_group'`)
	w.store.grouped.Store(n > 0)
	w.grouping = n == 0 && !w.store.opts.Inspect
	return err
}
