package sqlitestore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
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
var versionIndexes = []string{
	`CREATE UNIQUE INDEX IF NOT EXISTS versions_at ON versions(document, at)`,
	`CREATE INDEX IF NOT EXISTS versions_log ON versions(collection, at, key)`,
}

// groupIndex creates the index of the groups whose ids do not tell their time. Until it is there, they
// are looked for in the log.
const groupIndex = `CREATE INDEX IF NOT EXISTS versions_group ON versions(collection, grp, at, key) WHERE ` + untimed

// untimed is the condition of the groups that are no UUID of version 7, which those are that asof
// makes: imported ones.
const untimed = `grp <> '' AND grp NOT GLOB '????????-????-7*'`

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
	script := append([]string{schema, groupIndex}, versionIndexes...)
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

// declare adds the declared collections and indexes to the file, and drops indexes
// that are not declared. It runs in the transaction in which the store opens.
func (s *Store) declare(ctx context.Context) error {
	w := s.writer
	for _, decl := range s.opts.Collections {
		if _, err := w.integer(`INSERT INTO collections(name) VALUES(?1) ON CONFLICT DO NOTHING`, decl.Name); err != nil {
			return err
		}
	}
	if err := s.readDeclarations(); err != nil {
		return err
	}
	for _, decl := range s.opts.Collections {
		if err := s.declareIndexes(ctx, s.byName[decl.Name], decl.Indexes); err != nil {
			return err
		}
	}
	return s.readDeclarations()
}

// declareIndexes drops and builds indexes until a collection has the declared
// ones.
func (s *Store) declareIndexes(ctx context.Context, coll *collection, decls []driver.Index) error {
	wanted := map[*index]bool{}
	var missing []driver.Index
	for _, decl := range decls {
		if ix := coll.index(decl.Path, decl.Kind, decl.List); ix != nil {
			wanted[ix] = true
		} else {
			missing = append(missing, decl)
		}
	}
	for _, ix := range coll.indexes {
		if wanted[ix] {
			continue
		}
		s.log.InfoContext(ctx, "dropping an index", "collection", coll.name, "path", ix.decl.Path)
		for _, query := range []string{
			`DELETE FROM past WHERE epoch IN (SELECT id FROM epochs WHERE idx = ?1)`,
			`DELETE FROM epochs WHERE idx = ?1`,
			`DELETE FROM entries WHERE idx = ?1`,
			`DELETE FROM indexes WHERE id = ?1`,
		} {
			if _, err := s.writer.integer(query, ix.id); err != nil {
				return err
			}
		}
	}
	for _, decl := range missing {
		if coll.sequence > 0 { // there is something to build
			s.log.InfoContext(ctx, "building an index", "collection", coll.name, "path", decl.Path)
		}
		if err := s.buildIndex(ctx, coll, decl); err != nil {
			return err
		}
	}
	return nil
}

// readDeclarations reads the collections and indexes of the file.
func (s *Store) readDeclarations() error {
	s.collections, s.byName, s.byID = nil, map[string]*collection{}, map[int64]*collection{}
	w := s.writer
	st, err := w.Prepare(`SELECT id, name FROM collections ORDER BY name`)
	if err != nil {
		return err
	}
	if err := w.rows(st, func(st *sqlite.Stmt) error {
		coll := newCollection(st.ColumnInt64(0), st.ColumnText(1))
		s.collections = append(s.collections, coll)
		s.byName[coll.name], s.byID[coll.id] = coll, coll
		return nil
	}); err != nil {
		return err
	}
	if len(s.collections) > maxCollections {
		return invalidf("%d collections are more than the %d that a store can hold", len(s.collections), maxCollections)
	}
	if st, err = w.Prepare(`SELECT id, collection, path, kind, list FROM indexes ORDER BY id`); err != nil {
		return err
	}
	if err := w.rows(st, func(st *sqlite.Stmt) error {
		ix := &index{id: st.ColumnInt64(0), decl: driver.Index{Kind: driver.Kind(st.ColumnInt64(3)), List: st.ColumnInt64(4) != 0}}
		coll := s.byID[st.ColumnInt64(1)]
		if err := json.Unmarshal([]byte(st.ColumnText(2)), &ix.decl.Path); err != nil || coll == nil {
			return internalf("index %d is of no collection, or has no path: %v", ix.id, err)
		}
		coll.addIndex(ix)
		return nil
	}); err != nil {
		return err
	}
	return s.reload(w.conn)
}

// reload reads the counters and epochs that the writer keeps in memory.
func (s *Store) reload(c *conn) error {
	for _, coll := range s.collections {
		coll.dirty = false
		st, err := c.prepare(`SELECT sequence, live, versions, last FROM collections WHERE id = ?1`, coll.id)
		if err != nil {
			return err
		}
		if err := c.rows(st, func(st *sqlite.Stmt) error {
			coll.sequence, coll.live, coll.versions = st.ColumnInt64(0), st.ColumnInt64(1), st.ColumnInt64(2)
			coll.last = driver.Instant(st.ColumnInt64(3))
			return nil
		}); err != nil {
			return err
		}
		for _, ix := range coll.indexes {
			ix.dirty, ix.copying = false, false
			if ix.live, err = c.integer(`SELECT live FROM indexes WHERE id = ?1`, ix.id); err != nil {
				return err
			}
			if ix.epochs, err = c.readEpochs(ix.id); err != nil {
				return err
			}
			if len(ix.epochs) == 0 {
				return internalf("index %d of %s has no epochs", ix.id, coll.name)
			}
		}
	}
	return nil
}

// readEpochs reads an index's epochs in their order.
func (c *conn) readEpochs(ix int64) ([]epoch, error) {
	st, err := c.prepare(`SELECT id, start, base, closed FROM epochs WHERE idx = ?1 ORDER BY start`, ix)
	if err != nil {
		return nil, err
	}
	var epochs []epoch
	err = c.rows(st, func(st *sqlite.Stmt) error {
		epochs = append(epochs, epoch{id: st.ColumnInt64(0), start: st.ColumnInt64(1), base: st.ColumnInt64(2), closed: st.ColumnInt64(3)})
		return nil
	})
	return epochs, err
}

// buildIndex adds an index and fills it from the history.
func (s *Store) buildIndex(ctx context.Context, coll *collection, decl driver.Index) error {
	w := s.writer
	path, err := json.Marshal(decl.Path)
	if err == nil {
		_, err = w.integer(`INSERT INTO indexes(collection, path, kind, list) VALUES(?1, ?2, ?3, ?4)`, coll.id, string(path), int64(decl.Kind), decl.List)
	}
	if err != nil {
		return err
	}
	ix := &index{id: w.LastInsertRowID(), decl: decl}
	if err := w.newEpoch(ix, beginning); err != nil {
		return err
	}
	return s.fillIndex(ctx, coll, ix)
}

// How many documents' entries fillIndex gathers before it writes them.
const fillBatch = 256

// fillIndex writes the entries of a new index, document by document.
func (s *Store) fillIndex(ctx context.Context, coll *collection, ix *index) error {
	w := s.writer
	// A separate collection with this index only, so that the others are not written.
	only := newCollection(coll.id, coll.name)
	only.addIndex(ix)
	st, err := w.prepare(`SELECT id, key, deleted, at, data FROM versions WHERE id >= ?1 AND id < ?2 ORDER BY id`, docOf(coll.id, 0).version(0), docOf(coll.id+1, 0).version(0))
	if err != nil {
		return err
	}
	var doc *state
	if err := w.rows(st, func(st *sqlite.Stmt) error {
		if id := docOfVersion(st.ColumnInt64(0)); doc == nil || doc.id != id {
			if len(w.pending.touched) >= fillBatch {
				if err := w.fill(ctx, only, ix); err != nil {
					return err
				}
			}
			doc = &state{coll: only, id: id, key: st.ColumnText(1), entries: make([][]entry, 1)}
		}
		v := &driver.Version{
			Deleted: st.ColumnInt64(2) != 0, RecordedAt: driver.Instant(st.ColumnInt64(3)), Data: w.bytes(st, 4),
		}
		w.setCurrent(doc, doc.number+1, v)
		return nil
	}); err != nil {
		return err
	}
	return w.fill(ctx, only, ix)
}

func (w *writer) fill(ctx context.Context, coll *collection, ix *index) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.flushEntries(); err != nil {
		return err
	}
	return w.flushIndex(coll, ix)
}

// collection is a named set of documents. Its name and its indexes are fixed
// while the store is open; the counters belong to the writer.
type collection struct {
	id      int64
	name    string
	indexes []*index
	// paths finds the values of all indexes in a document; each index names
	// the slot of its value. slots is the number of slots.
	paths *paths
	slots int
	// keys is the index on the documents' keys, which every collection has. Its
	// entries are all documents that ever existed, at every instant.
	keys *index

	sequence int64 // documents that ever existed
	live     int64
	versions int64
	last     driver.Instant // the latest commit
	dirty    bool           // counters differ from those in the file
}

// index is a declared index. Its epochs and counters belong to the writer.
type index struct {
	id   int64
	decl driver.Index
	slot int

	live   int64
	epochs []epoch // by start; the last one is open
	dirty  bool
	// Before the open epoch is cut: the entries that continue are copied, as far as this.
	copying bool
	copied  bound
}

// epoch is an interval of time with all entries of table past that are needed at
// any instant in it, see entries.go.
type epoch struct {
	id     int64
	start  int64
	base   int64 // entries that continue after its end; of the open one those that are copied before it is cut
	closed int64 // the other entries
	dirty  bool  // counters differ from those in the file
	whole  bool  // it cannot be cut: all of its changes have one instant
}

func newCollection(id int64, name string) *collection {
	return &collection{id: id, name: name, paths: newPaths(), keys: &index{decl: driver.Index{Kind: driver.KindString}}}
}

// index returns the declared index on a path, nil where there is none.
func (c *collection) index(path []string, kind driver.Kind, list bool) *index {
	for _, ix := range c.indexes {
		if ix.decl.Kind == kind && ix.decl.List == list && slices.Equal(ix.decl.Path, path) {
			return ix
		}
	}
	return nil
}

// addIndex adds an index while the store opens.
func (c *collection) addIndex(ix *index) {
	ix.slot = c.paths.add(ix.decl.Path, c.slots)
	if ix.slot == c.slots {
		c.slots++
	}
	c.indexes = append(c.indexes, ix)
}
