package sqlitestore

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// Now implements driver.Engine.
func (s *Store) Now(context.Context) (driver.Instant, error) { return s.clock.Now(), nil }

// Settle implements driver.Engine.
func (s *Store) Settle(ctx context.Context, at driver.Instant) error {
	return wrap(s.clock.Settle(ctx, at), "waiting for commits in flight")
}

// Loaded implements driver.Engine.
func (s *Store) Loaded(context.Context) (driver.Instant, error) {
	return driver.Instant(s.loaded.Load()), nil
}

// Ping implements driver.Engine.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.here.check(); err != nil {
		return err
	}
	c, err := s.readers.get(ctx)
	if err != nil {
		return err
	}
	defer s.readers.put(c)
	_, err = c.integer(`SELECT count(*) FROM collections`)
	return wrap(err, "reading "+s.path)
}

// Stats implements driver.Engine. Bytes is the size of the file and its log.
func (s *Store) Stats(ctx context.Context) (driver.Stats, error) {
	var stats driver.Stats
	c, err := s.readers.get(ctx)
	if err != nil {
		return stats, err
	}
	defer s.readers.put(c)
	st, err := c.Prepare(`SELECT name, live, versions FROM collections ORDER BY name`)
	if err != nil {
		return stats, wrap(err, "counting")
	}
	if err := c.rows(st, func(st *sqlite.Stmt) error {
		stats.Add(driver.CollectionStats{Name: st.ColumnText(0), Documents: st.ColumnInt64(1), Versions: st.ColumnInt64(2)})
		return nil
	}); err != nil {
		return stats, wrap(err, "counting")
	}
	stats.Writes, stats.Commits = s.writer.writes.Load(), s.writer.commits.Load()
	for _, name := range []string{s.path, s.path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			stats.Bytes += info.Size()
		}
	}
	return stats, nil
}

// collection is a named set of documents. Its name and its indexes are fixed
// while the store is open; the counters belong to the writer.
type collection struct {
	id      int64
	name    string
	indexes []*index
	// paths finds the values of all indexes in a document, each in the slot
	// that the index names; slots is how many there are.
	paths *paths
	slots int
	// keys stands for the index on the documents' keys, which every collection has.
	// Its entries are all documents that ever were, whatever the instant.
	keys *index

	sequence int64 // documents that ever were
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
}

// epoch is a stretch of time whose entries in table past are complete for
// every instant in it, see epochs.go.
type epoch struct {
	id     int64
	start  int64
	base   int64 // entries that reach over its end
	closed int64 // the other entries
	dirty  bool  // counters differ from those in the file
	whole  bool  // it cannot be cut: all of its changes fall on one instant
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

// addIndex is part of opening.
func (c *collection) addIndex(ix *index) {
	ix.slot = c.paths.add(ix.decl.Path, c.slots)
	if ix.slot == c.slots {
		c.slots++
	}
	c.indexes = append(c.indexes, ix)
}

// encodePath writes an index's path as it is stored.
func encodePath(path []string) (string, error) {
	b, err := json.Marshal(path)
	return string(b), err
}
