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
	if err := sqlitex.ExecuteTransient(c.Conn, pragma("application_id", applicationID), nil); err != nil {
		return err
	}
	return sqlitex.ExecuteTransient(c.Conn, pragma("user_version", formatVersion), nil)
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
