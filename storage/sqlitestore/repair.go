package sqlitestore

import (
	"time"

	"github.com/google/uuid"
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// instants are the columns that hold times of versions.
var instants = [...]struct{ table, column string }{
	{"versions", "at"},
	{"documents", "at"},
	{"collections", "last"},
	{"entries", "since"},
	{"past", "since"},
	{"past", "until"},
	{"epochs", "start"},
	{"loads", "at"},
	{"loads", "latest"},
}

// repair gives versions that lie in the future other times, as part of the
// transaction in which the store opens: that in the identifier of the attempt that
// made the version where it is a UUID that has one, and in any case one after every
// version that does not lie in the future, not in the future, and in the order of
// the times that they had. What was only read at in the future is forgotten.
func (s *Store) repair() error {
	w, present := s.writer, driver.InstantOf(s.opts.Clock())
	if _, err := w.integer(`UPDATE clock SET last = ?1 WHERE last > ?1`, int64(present)); err != nil {
		return err
	}
	attempted, err := w.attemptedAfter(present)
	if err != nil {
		return err
	}
	latest, err := w.integer(`SELECT max(at) FROM versions WHERE at <= ?1`, int64(present))
	if err != nil {
		return err
	}
	first := latest + 1
	if err := w.exec(`CREATE TEMP TABLE moved(old INTEGER PRIMARY KEY, new INTEGER NOT NULL)`); err != nil {
		return err
	}
	st, err := w.Prepare(`SELECT DISTINCT at FROM versions WHERE at > ?1 ORDER BY at`)
	if err != nil {
		return err
	}
	st.BindInt64(1, int64(present))
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
			int64(present), forever); err != nil {
			return err
		}
	}
	s.log.Info("gave versions that lay in the future other times", "instants", n, "from", driver.Instant(first), "to", driver.Instant(latest))
	if err := s.readDeclarations(); err != nil {
		return err
	}
	return s.readArrivals()
}

// attemptedAfter returns when versions after an instant were attempted, by their
// times, as far as that is known and not after it.
func (w *writer) attemptedAfter(present driver.Instant) (map[int64]int64, error) {
	st, err := w.Prepare(`SELECT v.at, w.id FROM writes w JOIN versions v ON v.id = w.version WHERE v.at > ?1`)
	if err != nil {
		return nil, err
	}
	st.BindInt64(1, int64(present))
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
