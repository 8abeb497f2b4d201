package sqlitestore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// The header of a store's file.
const (
	applicationID = 0x61736f66 // "asof"
	formatVersion = 4
)

// Identifiers are packed so that rows that are read together are adjacent:
//
//	document = collection << 28 | sequence in the collection
//	version  = document << 26 | number
//
// A collection is one range of documents, a document's history is one range of
// versions, and the previous version is the row before.
const (
	sequenceBits   = 28
	numberBits     = 26
	maxCollections = 1<<(63-sequenceBits-numberBits) - 1
	maxSequence    = 1<<sequenceBits - 1
	maxNumber      = 1<<numberBits - 1
)

type docID int64

func docOf(coll, seq int64) docID          { return docID(coll<<sequenceBits | seq) }
func (d docID) version(number int64) int64 { return int64(d)<<numberBits | number }
func docOfVersion(id int64) docID          { return docID(id >> numberBits) }

const forever = int64(driver.Forever)

// schema creates the tables of format 1, but for seal, which is before data, where it is read without that;
// upgradeFormat converts a file to the present format.
//
// documents holds the current state, one row for each document that ever
// existed; versions holds every version including the current one, and its
// rows never change. clock holds the latest instant that was handed out before
// the store was closed. writes holds the attempts that were committed.
// entries and past are the declared indexes, see entries.go.
const schema = `
CREATE TABLE clock(
	last      INTEGER NOT NULL
);
INSERT INTO clock(last) VALUES(0);
CREATE TABLE collections(
	id        INTEGER PRIMARY KEY,
	name      TEXT NOT NULL UNIQUE,
	sequence  INTEGER NOT NULL DEFAULT 0,
	live      INTEGER NOT NULL DEFAULT 0,
	versions  INTEGER NOT NULL DEFAULT 0,
	last      INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE documents(
	id        INTEGER PRIMARY KEY,
	number    INTEGER NOT NULL,
	at        INTEGER NOT NULL,
	op        INTEGER NOT NULL,
	deleted   INTEGER NOT NULL,
	author    TEXT NOT NULL,
	message   TEXT NOT NULL,
	grp       TEXT NOT NULL,
	changed   TEXT NOT NULL,
	collection INTEGER NOT NULL,
	key       TEXT NOT NULL,
	seal      BLOB,
	data      BLOB
);
CREATE UNIQUE INDEX documents_key ON documents(collection, key);
CREATE TABLE versions(
	id        INTEGER PRIMARY KEY,
	document  INTEGER NOT NULL,
	at        INTEGER NOT NULL,
	op        INTEGER NOT NULL,
	deleted   INTEGER NOT NULL,
	author    TEXT NOT NULL,
	message   TEXT NOT NULL,
	grp       TEXT NOT NULL,
	changed   TEXT NOT NULL,
	collection INTEGER NOT NULL,
	key       TEXT NOT NULL,
	seal      BLOB,
	data      BLOB
);
CREATE TABLE writes(
	id        BLOB PRIMARY KEY,
	version   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE indexes(
	id         INTEGER PRIMARY KEY,
	collection INTEGER NOT NULL,
	path       TEXT NOT NULL,
	kind       INTEGER NOT NULL,
	list       INTEGER NOT NULL,
	live       INTEGER NOT NULL DEFAULT 0,
	UNIQUE(collection, path, kind, list)
);
CREATE TABLE epochs(
	id        INTEGER PRIMARY KEY,
	idx       INTEGER NOT NULL,
	start     INTEGER NOT NULL,
	base      INTEGER NOT NULL DEFAULT 0,
	closed    INTEGER NOT NULL DEFAULT 0,
	UNIQUE(idx, start)
);
CREATE TABLE entries(
	idx       INTEGER NOT NULL,
	value     BLOB NOT NULL,
	key       TEXT NOT NULL,
	document  INTEGER NOT NULL,
	since     INTEGER NOT NULL,
	PRIMARY KEY(idx, value, key)
) WITHOUT ROWID;
CREATE TABLE past(
	epoch     INTEGER NOT NULL,
	value     BLOB NOT NULL,
	key       TEXT NOT NULL,
	since     INTEGER NOT NULL,
	until     INTEGER NOT NULL,
	document  INTEGER NOT NULL,
	PRIMARY KEY(epoch, value, key, since)
) WITHOUT ROWID;
`

// versionIndexes creates the indexes of table versions: a document's version at an
// instant, and the order of commits.
var versionIndexes = [...]string{
	`CREATE UNIQUE INDEX IF NOT EXISTS versions_at ON versions(document, at)`,
	`CREATE INDEX IF NOT EXISTS versions_log ON versions(collection, at, key)`,
}

// Columns that a row of documents and a row of versions have in common, in
// the same order, so that one function reads both. The position of each:
const (
	colID = iota // of the document, or of the version
	colNumber
	colAt
	colOp
	colDeleted
	colAuthor
	colMessage
	colGroup
	colChanged
	colKey
	colSeal
	colData
	colNext // versions only: when the next version was committed; null: never
)

const (
	documentColumns = `d.id, d.number, d.at, d.op, d.deleted, d.author, d.message, d.grp, d.changed, d.key, d.seal, d.data`
	versionColumns  = `v.id, v.id & 67108863, v.at, v.op, v.deleted, v.author, v.message, v.grp, v.changed, v.key, v.seal, v.data`
	versionNext     = `(SELECT n.at FROM versions n WHERE n.id = v.id + 1)`
)

// checkFormat returns an error for a file that is neither empty nor a store of a
// format that this program can read. It runs before anything is written.
func (c *conn) checkFormat() error {
	id, err := c.integer("PRAGMA application_id")
	if err != nil {
		return err
	}
	tables, err := c.integer("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	version, err := c.integer("PRAGMA user_version")
	switch {
	case err != nil:
		return err
	case id == 0 && tables == 0 && version == 0:
		return nil
	case id != applicationID:
		return invalidf("the file is a SQLite database of another program; name another file")
	case version > formatVersion:
		return invalidf("the file has format %d and this program knows formats up to %d; use a newer version of asof", version, formatVersion)
	case version < 1:
		return internalf("the file has format %d, which never was; restore it from a backup", version)
	}
	return nil
}

// createSchema creates the tables of format 1 in a new file, as part of a transaction.
func (c *conn) createSchema() error {
	version, err := c.integer("PRAGMA user_version")
	if err != nil || version != 0 {
		return err
	}
	for _, query := range append(splitStatements(schema), versionIndexes[:]...) {
		if err := sqlitex.ExecuteTransient(c.Conn, query, nil); err != nil {
			return err
		}
	}
	return sqlitex.ExecuteTransient(c.Conn, pragma("application_id", applicationID), nil)
}

// upgradeFormat converts a file of an older format to the present one, as part of a
// transaction. Format 2 kept the order in which versions arrived; format 3 keeps
// the instant of the last load instead. For a file with loaded versions that is
// the present, so that watchers of its log restart. Format 4 has seals.
func (c *conn) upgradeFormat(ctx context.Context, present driver.Instant, log *slog.Logger) error {
	version, err := c.integer("PRAGMA user_version")
	if err != nil || version == formatVersion {
		return err
	}
	var queries []string
	if version < 3 {
		queries = []string{
			"DROP TABLE IF EXISTS store", "DROP TABLE IF EXISTS loads", "DROP TABLE IF EXISTS late",
			"CREATE TABLE loaded(at INTEGER NOT NULL)",
			fmt.Sprintf("INSERT INTO loaded(at) SELECT CASE WHEN EXISTS (SELECT 1 FROM versions WHERE op = %d) THEN max(last, %d) ELSE 0 END FROM clock", driver.OpImport, present),
		}
	}
	if version > 0 {
		queries = append(queries, "ALTER TABLE documents ADD COLUMN seal BLOB", "ALTER TABLE versions ADD COLUMN seal BLOB")
	}
	for _, query := range append(queries, pragma("user_version", formatVersion)) {
		if err := sqlitex.ExecuteTransient(c.Conn, query, nil); err != nil {
			return err
		}
	}
	return c.sealAll(ctx, log)
}

// sealAll seals the versions that have no seal, as part of a transaction: those of a file of
// an older format, or the last ones of documents, to which repair gave other times. It keeps
// a batch of seals in memory.
func (c *conn) sealAll(ctx context.Context, log *slog.Logger) error {
	const batch, report = 1000, 100_000
	find, err := c.Prepare(`SELECT ` + versionColumns + `, c.name, (SELECT b.seal FROM versions b WHERE b.id = v.id - 1)
		FROM versions v JOIN collections c ON c.id = v.collection WHERE v.id > ?1 AND v.seal IS NULL ORDER BY v.id LIMIT ?2`)
	if err != nil {
		return err
	}
	var last int64 // the version that was sealed last
	var before []byte
	for done := 0; ctx.Err() == nil; {
		var ids []int64
		var seals [][]byte
		find.BindInt64(1, last)
		find.BindInt64(2, batch)
		if err := c.rows(find, func(s *sqlite.Stmt) error {
			v, err := c.version(s, s.ColumnText(colNext), true, nil)
			if err != nil {
				return err
			}
			id := s.ColumnInt64(colID)
			switch {
			case v.Number == 1:
				before = nil
			case id != last+1:
				before = c.bytes(s, colNext+1)
			}
			before, last = seal.New(before, v, 0), id
			ids, seals = append(ids, id), append(seals, before)
			return nil
		}); err != nil {
			return err
		}
		for i, id := range ids {
			if _, err := c.integer(`UPDATE versions SET seal = ?2 WHERE id = ?1`, id, seals[i]); err != nil {
				return err
			}
		}
		if done += len(ids); len(ids) < batch {
			return c.exec(`UPDATE documents SET seal = (SELECT v.seal FROM versions v WHERE v.id = (documents.id << 26) + documents.number) WHERE seal IS NULL`)
		}
		if done%report == 0 {
			log.Info("sealing the history, once; the store opens when it is done", "versions", done)
		}
	}
	return ctx.Err()
}

// readLoaded reads the instant of the last load.
func (s *Store) readLoaded() error {
	at, err := s.writer.loads()
	if err == nil {
		s.loaded.Store(at)
	}
	return err
}

func pragma(name string, value int) string { return fmt.Sprintf("PRAGMA %s = %d", name, value) }

// splitStatements splits a script at its semicolons: it must have no triggers and
// no semicolons in literals.
func splitStatements(script string) []string {
	var out []string
	for part := range strings.SplitSeq(script, ";") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
