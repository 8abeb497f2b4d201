package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// sqlStatements are a layout on SQLite. Readers return key, number, at, data and, where some
// versions are patches, what they undo. Each statement of a change has to change one row,
// otherwise the version that the writer had read is not the current one.
//
// Parameters: :key, :after and :then of readers; :old and :undo, the number of the version
// that is superseded and what makes it of the next one; :number, :at and :data of the next
// one. When a document is filled in, each version but the last goes through earlier, with
// :undo of the one after it, recorded :next; then the last one through last, with :ats and
// :earlier, lists of what came before.
type sqlStatements struct {
	name, schema        string
	earlier, last       string
	current, page, then string
	update              []string
}

const (
	sqlThenOfVersions = `SELECT key, number, at, data FROM versions WHERE key = :key AND at <= :then ORDER BY at DESC LIMIT 1`
	sqlCurrent        = `SELECT key, number, at, data FROM current WHERE key = :key`
	sqlPage           = `SELECT key, number, at, data FROM current WHERE key > :after ORDER BY key LIMIT 50`
	sqlInsertCurrent  = `INSERT INTO current VALUES(:key, :number, :at, :data)`
	sqlSwap           = `UPDATE current SET number = :number, at = :at, data = :data WHERE key = :key AND number = :old`
	sqlTables         = `CREATE TABLE IF NOT EXISTS current(key TEXT PRIMARY KEY, number INTEGER NOT NULL, at INTEGER NOT NULL, data TEXT NOT NULL);`
)

var sqlLayouts = []sqlStatements{
	{
		name: "a row for each version",
		schema: `CREATE TABLE IF NOT EXISTS versions(key TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY(key, number));
			CREATE UNIQUE INDEX IF NOT EXISTS versions_at ON versions(key, at);`,
		earlier: `INSERT INTO versions VALUES(:key, :number, :at, :data)`,
		last:    `INSERT INTO versions VALUES(:key, :number, :at, :data)`,
		current: `SELECT key, number, at, data FROM versions WHERE key = :key ORDER BY number DESC LIMIT 1`,
		// From each key to the next along the index, which a GROUP BY would read whole.
		page: `WITH RECURSIVE keys(key, n) AS (
			SELECT (SELECT min(key) FROM versions WHERE key > :after), 1 UNION ALL
			SELECT (SELECT min(key) FROM versions v WHERE v.key > keys.key), n + 1 FROM keys WHERE keys.key IS NOT NULL AND n < 50)
			SELECT v.key, v.number, v.at, v.data FROM keys CROSS JOIN versions v
			WHERE v.key = keys.key AND v.number = (SELECT max(number) FROM versions l WHERE l.key = keys.key) ORDER BY keys.key`,
		then:   sqlThenOfVersions,
		update: []string{`INSERT INTO versions SELECT :key, :number, :at, :data WHERE :old = (SELECT max(number) FROM versions WHERE key = :key)`},
	},
	{
		name: "the same with a current flag",
		schema: `CREATE TABLE IF NOT EXISTS versions(key TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, data TEXT NOT NULL, current INTEGER NOT NULL, PRIMARY KEY(key, number));
			CREATE UNIQUE INDEX IF NOT EXISTS versions_at ON versions(key, at);
			CREATE UNIQUE INDEX IF NOT EXISTS versions_current ON versions(key) WHERE current = 1;`,
		earlier: `INSERT INTO versions VALUES(:key, :number, :at, :data, 0)`,
		last:    `INSERT INTO versions VALUES(:key, :number, :at, :data, 1)`,
		current: `SELECT key, number, at, data FROM versions WHERE key = :key AND current = 1`,
		page:    `SELECT key, number, at, data FROM versions WHERE key > :after AND current = 1 ORDER BY key LIMIT 50`,
		then:    sqlThenOfVersions,
		update: []string{
			`UPDATE versions SET current = 0 WHERE key = :key AND number = :old AND current = 1`,
			`INSERT INTO versions VALUES(:key, :number, :at, :data, 1)`,
		},
	},
	{
		name:    "embedded history",
		schema:  `CREATE TABLE IF NOT EXISTS current(key TEXT PRIMARY KEY, number INTEGER NOT NULL, at INTEGER NOT NULL, data TEXT NOT NULL, ats BLOB NOT NULL, earlier BLOB NOT NULL);`,
		last:    `INSERT INTO current VALUES(:key, :number, :at, :data, jsonb(:ats), jsonb(:earlier))`,
		current: sqlCurrent,
		page:    sqlPage,
		then: `SELECT key, number, at, data FROM current WHERE key = :key AND at <= :then UNION ALL
			SELECT key, i + 1, json_extract(ats, '$[' || i || ']'), json_extract(earlier, '$[' || i || ']') FROM
			(SELECT key, ats, earlier, (SELECT max(e.key) FROM json_each(d.ats) e WHERE e.value <= :then) AS i FROM current d WHERE key = :key AND at > :then) WHERE i IS NOT NULL`,
		update: []string{`UPDATE current SET ats = jsonb_insert(ats, '$[#]', at), earlier = jsonb_insert(earlier, '$[#]', data),
			number = :number, at = :at, data = :data WHERE key = :key AND number = :old`},
	},
	{
		name: "a table of earlier versions",
		schema: sqlTables + `CREATE TABLE IF NOT EXISTS earlier(key TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY(key, number));
			CREATE UNIQUE INDEX IF NOT EXISTS earlier_at ON earlier(key, at);`,
		earlier: `INSERT INTO earlier VALUES(:key, :number, :at, :data)`,
		last:    sqlInsertCurrent,
		current: sqlCurrent,
		page:    sqlPage,
		then: `SELECT key, number, at, data FROM (SELECT * FROM current WHERE key = :key AND at <= :then UNION ALL
			SELECT * FROM (SELECT * FROM earlier WHERE key = :key AND at <= :then ORDER BY at DESC LIMIT 1)) ORDER BY at DESC LIMIT 1`,
		update: []string{`INSERT INTO earlier SELECT * FROM current WHERE key = :key AND number = :old`, sqlSwap},
	},
	{
		name:    "deltas, backwards",
		schema:  sqlTables + `CREATE TABLE IF NOT EXISTS earlier(key TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, patch TEXT NOT NULL, undoes INTEGER NOT NULL, PRIMARY KEY(key, number));`,
		earlier: `INSERT INTO earlier VALUES(:key, :number, :at, :undo, :next)`,
		last:    sqlInsertCurrent,
		current: sqlCurrent,
		page:    sqlPage,
		then: `SELECT key, number, at, data, 0 FROM current WHERE key = :key UNION ALL
			SELECT key, number, at, patch, undoes FROM earlier WHERE key = :key ORDER BY number DESC`,
		update: []string{`INSERT INTO earlier SELECT key, number, at, :undo, :at FROM current WHERE key = :key AND number = :old`, sqlSwap},
	},
}

// sqlLayout is a layout in a file that nobody else has open.
type sqlLayout struct {
	sqlStatements
	conn *sqlite.Conn
}

// sqlSide has the layouts in SQLite files in a directory. All sync each commit.
func sqlSide(dir string) *side {
	s := new(side)
	for _, of := range sqlLayouts {
		s.variants = append(s.variants, variant{of.name, func(_ context.Context, place string) (layout, error) {
			conn, err := openBare(place, of.schema)
			return &sqlLayout{of, conn}, err
		}})
	}
	s.variants = append(s.variants, ofEngine(func(ctx context.Context, place string, c []driver.Collection) (driver.Engine, error) {
		return sqlitestore.Open(ctx, place, sqlitestore.Options{Collections: c})
	}))
	s.place = func() (string, func() error, error) {
		own := filepath.Join(dir, rand.Text())
		return filepath.Join(own, "store.db"), func() error { return os.RemoveAll(own) }, os.Mkdir(own, 0o700)
	}
	s.size = func(_ context.Context, place string) (int64, error) {
		info, err := os.Stat(place)
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}
	return s
}

type sqlArgs map[string]any

// run runs a statement until row returns false.
func (l *sqlLayout) run(query string, args sqlArgs, row func(stored) bool) (err error) {
	stmt, err := l.conn.Prepare(query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stmt.Reset()) }()
	for i := 1; i <= stmt.BindParamCount(); i++ {
		switch value := args[stmt.BindParamName(i)].(type) {
		case int64:
			stmt.BindInt64(i, value)
		case string:
			stmt.BindText(i, value)
		default:
			return errors.New("no value for " + stmt.BindParamName(i) + " in " + query)
		}
	}
	for more, err := stmt.Step(); more || err != nil; more, err = stmt.Step() {
		if err != nil {
			return err
		}
		s := stored{version: version{stmt.ColumnText(0), stmt.ColumnInt64(1), stmt.ColumnInt64(2), stmt.ColumnText(3)}}
		if stmt.ColumnCount() > 4 {
			s.undoes = stmt.ColumnInt64(4)
		}
		if !row(s) {
			return nil
		}
	}
	return nil
}

// transaction commits what change does, if it returns no error.
func (l *sqlLayout) transaction(change func() error) error {
	if err := l.run("BEGIN IMMEDIATE", nil, nil); err != nil {
		return err
	}
	if err := change(); err != nil {
		return errors.Join(err, l.run("ROLLBACK", nil, nil))
	}
	return l.run("COMMIT", nil, nil)
}

func (l *sqlLayout) fill(_ context.Context, history []version) error {
	return l.transaction(func() error {
		ats, earlier := []int64{}, []string{}
		for i, v := range history {
			args := sqlArgs{":key": v.key, ":number": v.number, ":at": v.at, ":data": v.data}
			query := l.earlier
			if i == len(history)-1 {
				query, args[":ats"], args[":earlier"] = l.last, asJSON(ats), asJSON(earlier)
			} else {
				args[":undo"], args[":next"] = undo(history[i+1].data, v.data), history[i+1].at
				ats, earlier = append(ats, v.at), append(earlier, v.data)
			}
			if query == "" {
				continue
			}
			if err := l.run(query, args, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *sqlLayout) current(_ context.Context, key string) (v version, err error) {
	err = l.run(l.sqlStatements.current, sqlArgs{":key": key}, func(s stored) bool { v = s.version; return false })
	return v, err
}

func (l *sqlLayout) page(_ context.Context, after string) (page []version, err error) {
	err = l.run(l.sqlStatements.page, sqlArgs{":after": after}, func(s stored) bool { page = append(page, s.version); return true })
	return page, err
}

func (l *sqlLayout) then(_ context.Context, key string, at int64) (version, error) {
	return current(at, func(yield func(stored, error) bool) {
		err := l.run(l.sqlStatements.then, sqlArgs{":key": key, ":then": at}, func(s stored) bool { return yield(s, nil) })
		if err != nil {
			yield(stored{}, err)
		}
	})
}

func (l *sqlLayout) update(_ context.Context, old, next version) (version, error) {
	args := sqlArgs{":key": next.key, ":old": old.number, ":undo": undo(next.data, old.data), ":number": next.number, ":at": next.at, ":data": next.data}
	return next, l.transaction(func() error {
		for _, query := range l.sqlStatements.update {
			if err := l.run(query, args, nil); err != nil {
				return err
			}
			if l.conn.Changes() != 1 {
				return errLost
			}
		}
		return nil
	})
}

func (l *sqlLayout) close() error { return l.conn.Close() }
