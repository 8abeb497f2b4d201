package sqlitestore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
	"github.com/asof/asof/storage/seal"
)

// Check implements driver.Engine. Beside SQLite's own check of the file, it
// reads the whole history and compares the other tables with what follows from it.
func (s *Store) Check(ctx context.Context, report func(problem string)) error {
	return wrap(s.read(ctx, func(c *conn) error {
		c.SetInterrupt(ctx.Done())
		defer c.SetInterrupt(nil)
		if err := c.integrity(report); err != nil {
			return err
		}
		for _, coll := range s.collections {
			k := &checker{conn: c, coll: coll, report: report, epochs: make([][]epoch, len(coll.indexes)), live: make([]int64, len(coll.indexes))}
			if err := k.run(); err != nil {
				return err
			}
		}
		return nil
	}), "checking "+s.path)
}

// integrity runs SQLite's own check of the file.
func (c *conn) integrity(report func(problem string)) error {
	s, err := c.Prepare("PRAGMA integrity_check")
	if err != nil {
		return err
	}
	return c.rows(s, func(s *sqlite.Stmt) error {
		if text := s.ColumnText(0); text != "ok" {
			report("file: " + text)
		}
		return nil
	})
}

// checker checks one collection.
type checker struct {
	*conn
	coll   *collection
	report func(problem string)

	// Counted from the history, to compare with the counters in the file:
	// the entries of each epoch of each index, and the live ones.
	epochs [][]epoch
	live   []int64

	documents, versions, present int64
	last                         driver.Instant
}

func (k *checker) problem(key, format string, args ...any) {
	k.report(fmt.Sprintf("%s %q: %s", k.coll.name, key, fmt.Sprintf(format, args...)))
}

func (k *checker) run() error {
	for i, ix := range k.coll.indexes {
		epochs, err := k.readEpochs(ix.id)
		if err != nil {
			return err
		}
		for n := range epochs {
			epochs[n].base, epochs[n].closed = 0, 0
		}
		k.epochs[i] = epochs
	}
	s, err := k.prepare(`SELECT `+documentColumns+` FROM documents d WHERE d.id >= ?1 AND d.id < ?2 ORDER BY d.id`, docOf(k.coll.id, 0), docOf(k.coll.id+1, 0))
	if err != nil {
		return err
	}
	if err := k.rows(s, k.document); err != nil {
		return err
	}
	return k.counters()
}

// document compares a document's row with its history.
func (k *checker) document(s *sqlite.Stmt) error {
	doc := docID(s.ColumnInt64(colID))
	row, err := k.version(s, k.coll.name, true, nil)
	if err != nil {
		return err
	}
	k.documents++
	if !row.Deleted {
		k.present++
	}
	h, err := k.prepare(`SELECT `+versionColumns+` FROM versions v WHERE v.id >= ?1 AND v.id < ?2 ORDER BY v.id`, doc.version(0), (doc + 1).version(0))
	if err != nil {
		return err
	}
	var history check.History
	expected := newIntervals(k.coll)
	if err := k.rows(h, func(h *sqlite.Stmt) error {
		v, err := k.version(h, k.coll.name, true, nil)
		if err != nil {
			return err
		}
		k.versions++
		if history.Last != nil {
			history.Last.SupersededAt = v.RecordedAt // which is not stored
		}
		for _, problem := range history.Next(v) {
			k.problem(row.Key, "%s", problem)
		}
		expected.next(int64(v.RecordedAt), k.coll.values(v.Data))
		return nil
	}); err != nil {
		return err
	}
	for _, problem := range history.End() {
		k.problem(row.Key, "%s", problem)
	}
	last := history.Last
	if last == nil {
		return nil
	}
	k.last = max(k.last, last.RecordedAt)
	if row.Number != last.Number || row.RecordedAt != last.RecordedAt || row.Op != last.Op || row.Deleted != last.Deleted ||
		row.Author != last.Author || row.Message != last.Message || row.Group != last.Group ||
		row.Key != last.Key || !slices.Equal(row.Changed, last.Changed) || string(row.Seal) != string(last.Seal) || string(row.Data) != string(last.Data) {
		k.problem(row.Key, "the current state is not that of the last version, %d", last.Number)
	}
	return k.entries(doc, row.Key, expected.entries)
}

// entries compares the expected entries of a document with the indexes.
func (k *checker) entries(doc docID, key string, entries [][]interval) error {
	for i, ix := range k.coll.indexes {
		for _, e := range entries[i] {
			if e.until == forever {
				k.live[i]++
				if err := k.find(ix, key, `SELECT document, ?4 FROM entries WHERE idx = ?1 AND value = ?2 AND key = ?3 AND since = ?4`, ix.id, e, int64(doc), e.since); err != nil {
					return err
				}
			}
			for n := range k.epochs[i] {
				p := &k.epochs[i][n]
				end, open := forever, n == len(k.epochs[i])-1
				if !open {
					end = k.epochs[i][n+1].start
				}
				if e.since >= end || e.until <= p.start || open && e.until == forever {
					continue
				}
				until := e.until
				if e.until >= end {
					until = forever
					p.base++
				} else {
					p.closed++
				}
				if err := k.find(ix, key, `SELECT document, until FROM past WHERE epoch = ?1 AND value = ?2 AND key = ?3 AND since = ?4`, p.id, e, int64(doc), until); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// find reports an entry that is missing or differs.
func (k *checker) find(ix *index, key, query string, where int64, e interval, doc, until int64) error {
	s, err := k.prepare(query, where, []byte(e.value), key, e.since)
	if err != nil {
		return err
	}
	row, err := s.Step()
	switch {
	case err != nil:
	case !row:
		k.problem(key, "the index on %v has no entry since %s", ix.decl.Path, driver.Instant(e.since))
	case s.ColumnInt64(0) != doc, s.ColumnInt64(1) != until && s.ColumnInt64(1) != e.until:
		// An entry that ends with its epoch may have that end or none there.
		k.problem(key, "the index on %v has a wrong entry since %s", ix.decl.Path, driver.Instant(e.since))
	}
	return finish(s, err)
}

// counters compares the counters, which also finds superfluous entries.
func (k *checker) counters() error {
	count := func(what string, want int64, query string, values ...any) error {
		got, err := k.integer(query, values...)
		if err == nil && got != want {
			k.report(fmt.Sprintf("%s: %d %s, but the history says %d", k.coll.name, got, what, want))
		}
		return err
	}
	id := k.coll.id
	if err := cmp.Or(
		count("documents", k.documents, `SELECT sequence FROM collections WHERE id = ?1`, id),
		count("live documents", k.present, `SELECT live FROM collections WHERE id = ?1`, id),
		count("versions", k.versions, `SELECT versions FROM collections WHERE id = ?1`, id),
		count("rows of history", k.versions, `SELECT count(*) FROM versions WHERE collection = ?1`, id),
		count("documents of another collection", 0, `SELECT count(*) FROM documents WHERE id >= ?1 AND id < ?2 AND collection <> ?3`, docOf(id, 0), docOf(id+1, 0), id),
		count("rows of history of another document or collection", 0, `SELECT count(*) FROM versions WHERE id >= ?1 AND id < ?2 AND (collection <> ?3 OR document <> id >> 26)`,
			docOf(id, 0).version(0), docOf(id+1, 0).version(0), id),
		count("µs of the last commit", int64(k.last), `SELECT last FROM collections WHERE id = ?1`, id),
	); err != nil {
		return err
	}
	for i, ix := range k.coll.indexes {
		if err := cmp.Or(
			count(fmt.Sprintf("entries of the index on %v", ix.decl.Path), k.live[i], `SELECT count(*) FROM entries WHERE idx = ?1`, ix.id),
			count(fmt.Sprintf("entries counted of the index on %v", ix.decl.Path), k.live[i], `SELECT live FROM indexes WHERE id = ?1`, ix.id),
		); err != nil {
			return err
		}
		for _, p := range k.epochs[i] {
			if err := cmp.Or(
				count(fmt.Sprintf("past entries of the index on %v", ix.decl.Path), p.base+p.closed, `SELECT count(*) FROM past WHERE epoch = ?1`, p.id),
				count(fmt.Sprintf("past entries counted of the index on %v", ix.decl.Path), p.base+p.closed, `SELECT base + closed FROM epochs WHERE id = ?1`, p.id),
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// instants are the columns that hold times of versions.
var instants = [...]struct{ table, column string }{
	{"versions", "at"}, {"documents", "at"}, {"collections", "last"}, {"entries", "since"}, {"past", "since"}, {"past", "until"}, {"epochs", "start"},
}

// repair gives versions that lie in the future other times, as part of the
// transaction in which the store opens: the time in the attempt's identifier if that is
// a UUID with a time. In any case the new times are after all versions that do not lie
// in the future, not in the future themselves, and in the order of the old times.
// Instants in the future that were only read at are dropped.
func (s *Store) repair(ctx context.Context) error {
	w, present := s.writer, driver.InstantOf(s.opts.Clock())
	if _, err := w.integer(`UPDATE clock SET last = ?1 WHERE last > ?1`, present); err != nil {
		return err
	}
	if _, err := w.integer(`UPDATE loaded SET at = ?1 WHERE at > ?1`, present); err != nil {
		return err
	}
	attempted, err := w.attemptedAfter(present)
	if err != nil {
		return err
	}
	latest, err := w.integer(`SELECT max(at) FROM versions WHERE at <= ?1`, present)
	if err != nil {
		return err
	}
	first := latest + 1
	if err := w.exec(`CREATE TEMP TABLE moved(old INTEGER PRIMARY KEY, new INTEGER NOT NULL)`); err != nil {
		return err
	}
	st, err := w.prepare(`SELECT DISTINCT at FROM versions WHERE at > ?1 ORDER BY at`, present)
	if err != nil {
		return err
	}
	n := 0
	if err := w.rows(st, func(st *sqlite.Stmt) error {
		at := st.ColumnInt64(0)
		latest = max(latest+1, attempted[at])
		n++
		_, err := w.integer(`INSERT INTO moved(old, new) VALUES(?1, ?2)`, at, latest)
		return err
	}); err != nil || n == 0 {
		return err
	}
	if latest > int64(present) {
		return driver.Errorf(driver.CodeUnavailable, "%d versions lie in the future, and there is no room for them between the last one that does not, of %s, and now; try again in a moment", n, driver.Instant(first-1))
	}
	for _, c := range instants {
		if _, err := w.integer(`UPDATE `+c.table+` SET `+c.column+` = (SELECT new FROM moved WHERE old = `+c.column+`) WHERE `+c.column+` > ?1 AND `+c.column+` < ?2`,
			present, forever); err != nil {
			return err
		}
	}
	if err := w.sealSince(ctx, first); err != nil {
		return err
	}
	s.log.Info("gave versions that lay in the future other times", "instants", n, "from", driver.Instant(first), "to", driver.Instant(latest))
	if err := s.readDeclarations(); err != nil {
		return err
	}
	// Watchers of the log must restart.
	if _, err := w.integer(`UPDATE loaded SET at = ?1`, present); err != nil {
		return err
	}
	return s.readLoaded()
}

// sealSince seals the versions since an instant anew, which are the last ones of their documents.
func (w *writer) sealSince(ctx context.Context, since int64) error {
	for v, id := new(driver.Version), int64(0); v != nil; {
		if err := ctx.Err(); err != nil {
			return err
		}
		find, err := w.prepare(`SELECT `+versionColumns+`, c.name, (SELECT b.seal FROM versions b WHERE b.id = v.id - 1)
			FROM versions v JOIN collections c ON c.id = v.collection WHERE v.id > ?1 AND v.at >= ?2 ORDER BY v.id LIMIT 1`, id, since)
		if err != nil {
			return err
		}
		v = nil
		if err := w.rows(find, func(st *sqlite.Stmt) (err error) {
			if v, err = w.version(st, st.ColumnText(colNext), true, nil); err == nil {
				id, v.Seal = st.ColumnInt64(colID), seal.New(w.bytes(st, colNext+1), v, seal.Schema(v.Seal))
			}
			return err
		}); err != nil {
			return err
		}
		if v != nil {
			if _, err := w.integer(`UPDATE versions SET seal = ?2 WHERE id = ?1`, id, v.Seal); err != nil {
				return err
			}
		}
	}
	_, err := w.integer(`UPDATE documents SET seal = (SELECT v.seal FROM versions v WHERE v.id = (documents.id << 26) + documents.number) WHERE at >= ?1`, since)
	return err
}

// attemptedAfter returns when the versions after an instant were attempted, by their
// times, if their identifiers have a time that is not after the instant.
func (w *writer) attemptedAfter(present driver.Instant) (map[int64]int64, error) {
	st, err := w.prepare(`SELECT v.at, w.id FROM writes w JOIN versions v ON v.id = w.version WHERE v.at > ?1`, present)
	if err != nil {
		return nil, err
	}
	attempted := map[int64]int64{}
	err = w.rows(st, func(st *sqlite.Stmt) error {
		id, err := uuid.FromBytes(w.raw(st, 1))
		if err != nil || id.Version() != 7 {
			return nil
		}
		seconds, nanos := id.Time().UnixTime()
		if at := driver.InstantOf(time.Unix(seconds, nanos)); at <= present {
			attempted[st.ColumnInt64(0)] = int64(at)
		}
		return nil
	})
	return attempted, err
}
