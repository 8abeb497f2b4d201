package sqlitestore

import (
	"context"

	"zombiezen.com/go/sqlite"
)

// Check implements driver.Engine.
func (s *Store) Check(ctx context.Context, report func(problem string)) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	c, err := s.readers.get(ctx)
	if err != nil {
		return err
	}
	defer s.readers.put(c)
	c.SetInterrupt(ctx.Done())
	defer c.SetInterrupt(nil)
	return wrap(c.integrity(report), "checking "+s.path)
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
