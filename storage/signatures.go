package storage

import (
	"context"

	"github.com/asof/asof/storage/driver"
)

var errSoon = badInput("being written")

func (c *Collection[T]) History(ctx context.Context, key string) (*History[T], error) {
	return nil, errSoon
}
func (c *Collection[T]) Versions(ctx context.Context, d *Document, from, to *driver.Instant, author *string, fields []string, first *int, after *string, last *int, before *string) (*VersionConnection[T], error) {
	return nil, errSoon
}
func (c *Collection[T]) Create(ctx context.Context, in CreateInput) (any, error)   { return nil, errSoon }
func (c *Collection[T]) Update(ctx context.Context, in UpdateInput) (any, error)   { return nil, errSoon }
func (c *Collection[T]) Delete(ctx context.Context, in DeleteInput) (any, error)   { return nil, errSoon }
func (c *Collection[T]) Restore(ctx context.Context, in RestoreInput) (any, error) { return nil, errSoon }
func (s *Store) DocumentChangelog(ctx context.Context, d *Document, fields []string, author *string, from, to *driver.Instant, first *int, after *string, last *int, before *string) (*FieldChangeConnection, error) {
	return nil, errSoon
}
func (s *Store) Changelog(ctx context.Context, where *ChangelogWhere, first *int, after *string, last *int, before *string) (*FieldChangeConnection, error) {
	return nil, errSoon
}
func (s *Store) Blame(ctx context.Context, d *Document, fields []string) ([]*FieldBlame, error) {
	return nil, errSoon
}
func (s *Store) Diff(ctx context.Context, d *Document, from VersionRef, to *VersionRef) (*DocumentDiff, error) {
	return nil, errSoon
}
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	return driver.LoadResult{}, errSoon
}
