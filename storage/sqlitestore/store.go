package sqlitestore

import (
	"context"
	"os"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// Now implements driver.Engine.
func (s *Store) Now(ctx context.Context) (driver.Instant, error) {
	if err := s.alive(ctx); err != nil {
		return 0, err
	}
	return s.clock.Now(), nil
}

// Settle implements driver.Engine.
func (s *Store) Settle(ctx context.Context, at driver.Instant) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	return wrap(s.clock.Settle(ctx, at), "waiting for commits in flight")
}

// alive returns an error when the store is closed or the context has ended.
func (s *Store) alive(ctx context.Context) error {
	if s.closed.Load() {
		return driver.Closed()
	}
	if err := ctx.Err(); err != nil {
		return driver.GivenUp(err)
	}
	return nil
}

// Ping implements driver.Engine.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
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
	if err := s.alive(ctx); err != nil {
		return stats, err
	}
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
