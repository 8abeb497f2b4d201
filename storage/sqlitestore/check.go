package sqlitestore

import (
	"cmp"
	"context"
	"fmt"
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
			if err := cmp.Or(k.documents(), k.currentStates(), k.counters()); err != nil {
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

	// What follows from the history, to compare with the counters in the file:
	// the entries of each epoch of each index, and the live ones.
	epochs [][]epoch
	live   []int64
}

func (k *checker) problem(key, format string, args ...any) {
	k.report(fmt.Sprintf("%s %q: %s", k.coll.name, key, fmt.Sprintf(format, args...)))
}

// Rows of a collection, whose number is parameter 1, by their identifiers.
const (
	ofDocuments = ` FROM documents d WHERE d.id >= ?1 << 28 AND d.id < ?1 + 1 << 28`
	ofVersions  = ` FROM versions v WHERE v.id >= ?1 << 54 AND v.id < ?1 + 1 << 54`
)

// documents checks the history of each document, and compares it with the indexes.
func (k *checker) documents() error {
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
	s, err := k.prepare(`SELECT d.id, d.key`+ofDocuments, k.coll.id)
	if err != nil {
		return err
	}
	return k.rows(s, func(s *sqlite.Stmt) error { return k.document(docID(s.ColumnInt64(0)), s.ColumnText(1)) })
}

func (k *checker) document(doc docID, key string) error {
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
		if history.Last != nil {
			history.Last.SupersededAt = v.RecordedAt // which is not stored
		}
		for _, problem := range history.Next(v) {
			k.problem(key, "%s", problem)
		}
		expected.next(int64(v.RecordedAt), k.coll.values(v.Data))
		return nil
	}); err != nil {
		return err
	}
	for _, problem := range history.End() {
		k.problem(key, "%s", problem)
	}
	return k.entries(doc, key, expected.entries)
}

// currentStates compares the documents with their last versions.
func (k *checker) currentStates() error {
	s, err := k.prepare(`SELECT d.key, d.number FROM (SELECT *`+ofDocuments+`) d LEFT JOIN versions v ON v.id = (d.id << 26) + d.number
		WHERE (d.at, d.op, d.deleted, d.author, d.message, d.grp, d.changed, d.collection, d.key, d.seal, d.data)
			IS NOT (v.at, v.op, v.deleted, v.author, v.message, v.grp, v.changed, v.collection, v.key, v.seal, v.data)
			OR EXISTS (SELECT 1 FROM versions n WHERE n.id = v.id + 1)`, k.coll.id)
	if err != nil {
		return err
	}
	return k.rows(s, func(s *sqlite.Stmt) error {
		k.problem(s.ColumnText(0), "the current state is not that of the last version, %d", s.ColumnInt64(1))
		return nil
	})
}

// entries compares the expected entries of a document with the indexes.
func (k *checker) entries(doc docID, key string, entries [][]interval) error {
	for i, ix := range k.coll.indexes {
		find := func(e interval, query string, where, until int64) error {
			// An entry that ends with its epoch may have that end or none there.
			n, err := k.integer(query, where, []byte(e.value), key, e.since, doc, until, e.until)
			if err == nil && n != 1 {
				k.problem(key, "the index on %v has no entry since %s, or another one", ix.decl.Path, driver.Instant(e.since))
			}
			return err
		}
		for _, e := range entries[i] {
			if e.until == forever {
				k.live[i]++
				if err := find(e, `SELECT count(*) FROM entries WHERE idx = ?1 AND value = ?2 AND key = ?3 AND since = ?4 AND document = ?5 AND ?6 = ?7`, ix.id, forever); err != nil {
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
				if err := find(e, `SELECT count(*) FROM past WHERE epoch = ?1 AND value = ?2 AND key = ?3 AND since = ?4 AND document = ?5 AND until IN (?6, ?7)`, p.id, until); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// counters compares the counters, which also finds superfluous rows and entries.
func (k *checker) counters() error {
	count := func(what string, want int64, query string, of int64) error {
		got, err := k.integer(query, of)
		if err == nil && got != want {
			k.report(fmt.Sprintf("%s: %d %s, but the history says %d", k.coll.name, got, what, want))
		}
		return err
	}
	for _, c := range [...]struct{ what, query, history string }{
		{"live documents", `SELECT live FROM collections WHERE id = ?1`, `SELECT count(*)` + ofDocuments + ` AND NOT deleted`},
		{"versions", `SELECT versions FROM collections WHERE id = ?1`, `SELECT count(*)` + ofVersions},
		{"µs of the last commit", `SELECT last FROM collections WHERE id = ?1`, `SELECT max(at)` + ofVersions},
		{"documents beyond the last one", `SELECT count(*)` + ofDocuments + ` AND d.id > (?1 << 28) + (SELECT sequence FROM collections WHERE id = ?1)`, `SELECT 0 * ?1`},
		{"rows of history of no document, another one or another collection", `SELECT count(*)` + ofVersions + ` AND (v.collection <> ?1 OR v.document <> v.id >> 26 OR v.document NOT IN (SELECT id FROM documents))`, `SELECT 0 * ?1`},
	} {
		want, err := k.integer(c.history, k.coll.id)
		if err == nil {
			err = count(c.what, want, c.query, k.coll.id)
		}
		if err != nil {
			return err
		}
	}
	for i, ix := range k.coll.indexes {
		if err := cmp.Or(
			count(fmt.Sprintf("entries of the index on %v", ix.decl.Path), k.live[i], `SELECT count(*) FROM entries WHERE idx = ?1`, ix.id),
			count(fmt.Sprintf("entries counted of the index on %v", ix.decl.Path), k.live[i], `SELECT live FROM indexes WHERE id = ?1`, ix.id),
		); err != nil {
			return err
		}
		for n, p := range k.epochs[i] {
			copied := int64(0) // of the open epoch: entries that continue, as many as may be
			if n == len(k.epochs[i])-1 {
				var err error
				if copied, err = k.integer(`SELECT count(*) FROM past p JOIN entries e ON e.idx = ?2 AND e.value = p.value AND e.key = p.key AND e.since = p.since WHERE p.epoch = ?1 AND p.until = ?3`, p.id, ix.id, forever); err != nil {
					return err
				}
			}
			if err := cmp.Or(
				count(fmt.Sprintf("past entries of the index on %v", ix.decl.Path), p.base+p.closed+copied, `SELECT count(*) FROM past WHERE epoch = ?1`, p.id),
				count(fmt.Sprintf("past entries counted of the index on %v", ix.decl.Path), p.base+p.closed+copied, `SELECT base + closed FROM epochs WHERE id = ?1`, p.id),
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// instants are the columns that hold times of versions.
var instants = [...]struct{ table, column string }{
	{"versions", "at"}, {"documents", "at"}, {"collections", "last"}, {"entries", "since"}, {"past", "since"}, {"past", "until"},
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
	latest, err := w.integer(`SELECT max(at) FROM versions WHERE at <= ?1`, present)
	if err != nil {
		return err
	}
	first, n := latest+1, 0
	if err := w.exec(`CREATE TEMP TABLE moved(old INTEGER PRIMARY KEY, new INTEGER NOT NULL)`); err != nil {
		return err
	}
	st, err := w.prepare(`SELECT v.at, w.id FROM versions v LEFT JOIN writes w ON w.version = v.id WHERE v.at > ?1 GROUP BY v.at ORDER BY v.at`, present)
	if err != nil {
		return err
	}
	if err := w.rows(st, func(st *sqlite.Stmt) error {
		n++
		latest += 2 // an epoch may begin in between
		if at := attemptedAt(w.raw(st, 1)); at <= present {
			latest = max(latest, int64(at))
		}
		_, err := w.integer(`INSERT INTO moved(old, new) VALUES(?1, ?2)`, st.ColumnInt64(0), latest)
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
	// An epoch begins with a version, or just behind the last one before it.
	if _, err := w.integer(`UPDATE epochs SET start = coalesce((SELECT new FROM moved WHERE old = start), (SELECT new + 1 FROM moved WHERE old = start - 1), start) WHERE start > ?1`, present); err != nil {
		return err
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

// attemptedAt returns when a write was attempted, by its identifier; 0 where that has no time.
func attemptedAt(id []byte) driver.Instant {
	u, err := uuid.FromBytes(id)
	if err != nil || u.Version() != 7 {
		return 0
	}
	return driver.InstantOf(time.Unix(u.Time().UnixTime()))
}
