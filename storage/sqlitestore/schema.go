package sqlitestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

// What a store's file says about itself.
const (
	applicationID = 0x61736f66 // "asof"
	formatVersion = 3
)

// Identifiers are packed so that what is read together lies together:
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

// schema creates the tables of format 1; upgrade makes a file one of this format.
//
// documents holds the current state, one row for each document that ever
// existed; versions holds every version including the current one, and its
// rows never change. clock holds the latest instant that was handed out before
// the store was closed. writes remembers the attempts that were committed.
// entries and past are the declared indexes, see epochs.go.
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

// versionIndexes makes the indexes of table versions: where a document was at an
// instant, and the commit order.
var versionIndexes = [...]string{
	`CREATE UNIQUE INDEX IF NOT EXISTS versions_at ON versions(document, at)`,
	`CREATE INDEX IF NOT EXISTS versions_log ON versions(collection, at, key)`,
}

// Columns that a row of documents and a row of versions have in common, in
// one order, so that one function reads both. The position of each:
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
	colData
	colNext // versions only: when the next version was committed; null: never
)

const (
	documentColumns = `id, number, at, op, deleted, author, message, grp, changed, key, data`
	versionColumns  = `v.id, v.id & 67108863, v.at, v.op, v.deleted, v.author, v.message, v.grp, v.changed, v.key, v.data`
	versionNext     = `(SELECT n.at FROM versions n WHERE n.id = v.id + 1)`
)

// checkHeader refuses a file that is no SQLite database. It runs before SQLite
// opens the file: closing it later would drop SQLite's locks.
func checkHeader(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return driver.Errorf(driver.CodeUnavailable, "cannot read the file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	const magic = "SQLite format 3\x00"
	header := make([]byte, len(magic))
	switch n, err := io.ReadFull(f, header); {
	case n == 0:
		return nil // empty: a new store
	case err != nil, string(header) != magic:
		return invalidf("the file is not a database of asof, or its beginning is damaged; name another file, or restore this one from a backup")
	}
	return nil
}

// checkFormat refuses a file that is not a store of this format, before
// anything is written to it. An empty file is fine.
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

// createSchema makes a new file a store of this format. It is part of a
// transaction.
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

// upgrade makes a file of an older format one of this format, as part of a
// transaction. Format 2 kept the order in which versions arrived; format 3 keeps
// the instant of the last load instead: of a file that holds loaded versions, the
// present, so that who followed its log begins anew.
func (c *conn) upgrade(present driver.Instant) error {
	version, err := c.integer("PRAGMA user_version")
	if err != nil || version == formatVersion {
		return err
	}
	for _, query := range []string{
		"DROP TABLE IF EXISTS store", "DROP TABLE IF EXISTS loads", "DROP TABLE IF EXISTS late",
		"CREATE TABLE loaded(at INTEGER NOT NULL)",
		fmt.Sprintf("INSERT INTO loaded(at) SELECT CASE WHEN EXISTS (SELECT 1 FROM versions WHERE op = %d) THEN max(last, %d) ELSE 0 END FROM clock", driver.OpImport, present),
		pragma("user_version", formatVersion),
	} {
		if err := sqlitex.ExecuteTransient(c.Conn, query, nil); err != nil {
			return err
		}
	}
	return nil
}

// readLoaded reads the instant of the last load, which a file of an older format
// that is only looked at does not have.
func (s *Store) readLoaded() error {
	version, err := s.writer.integer("PRAGMA user_version")
	if err != nil || version < formatVersion {
		return err
	}
	at, err := s.writer.integer("SELECT at FROM loaded")
	if err == nil {
		s.loaded.Store(at)
	}
	return err
}

func pragma(name string, value int) string { return fmt.Sprintf("PRAGMA %s = %d", name, value) }

// splitStatements cuts a script of statements without triggers and without
// semicolons in literals.
func splitStatements(script string) []string {
	var out []string
	for part := range strings.SplitSeq(script, ";") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
