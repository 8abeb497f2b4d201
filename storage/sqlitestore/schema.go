package sqlitestore

import (
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

// The header of a store's file.
const (
	applicationID = 0x61736f66 // "asof"
	formatVersion = 4
)

const forever = int64(driver.Forever)

// schema creates the tables; seal is before data, where it is read without that.
//
// documents holds the current state, one row for each document that ever
// existed; versions holds every version including the current one, and its
// rows never change. clock holds the latest instant that was handed out before
// the store was closed, loaded that of the last load. writes holds the attempts that
// were committed.
// entries and past are the declared indexes, see entries.go.
const schema = `
CREATE TABLE clock(
	last      INTEGER NOT NULL
);
INSERT INTO clock(last) VALUES(0);
CREATE TABLE loaded(
	at        INTEGER NOT NULL
);
INSERT INTO loaded(at) VALUES(0);
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
	versionColumns  = versionHead + `, v.data`
	versionHead     = `v.id, v.id & 67108863, v.at, v.op, v.deleted, v.author, v.message, v.grp, v.changed, v.key, v.seal`
	versionNext     = `(SELECT n.at FROM versions n WHERE n.id = v.id + 1)`
)

// checkFormat returns an error for a file that is neither empty nor a store of this
// program's format. It runs before anything is written.
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
		return invalidf("the file has format %d and this program knows format %d; use a newer version of asof", version, formatVersion)
	case version < formatVersion:
		return invalidf("the file has format %d and this program knows format %d; export it with the program that made it, and import that into a new file", version, formatVersion)
	}
	return nil
}

// createSchema creates the tables in a new file, as part of a transaction.
func (c *conn) createSchema() error {
	version, err := c.integer("PRAGMA user_version")
	if err != nil || version != 0 {
		return err
	}
	script := append([]string{schema}, versionIndexes[:]...)
	script = append(script, pragma("application_id", applicationID), pragma("user_version", formatVersion))
	return sqlitex.ExecuteScript(c.Conn, strings.Join(script, ";\n"), nil)
}

// readLoaded reads the instant of the last load.
func (s *Store) readLoaded() error {
	at, err := s.writer.integer(`SELECT at FROM loaded`)
	if err == nil {
		s.loaded.Store(at)
	}
	return err
}

func pragma(name string, value int) string { return fmt.Sprintf("PRAGMA %s = %d", name, value) }
