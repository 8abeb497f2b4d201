package app

import (
	"context"
	"iter"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage/driver"
)

// counting is an engine that counts the versions that each operation reads.
type counting struct{ driver.Engine }

func (c counting) Get(ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
	versions, err := c.Engine.Get(ctx, collection, refs)
	found := 0
	for _, v := range versions {
		if v != nil {
			found++
		}
	}
	httpapi.CountRead(ctx, found)
	return versions, err
}

func (c counting) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	versions, err := c.Engine.Query(ctx, q)
	httpapi.CountRead(ctx, len(versions))
	return versions, err
}

func (c counting) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[driver.Entry, error] {
	log := c.Engine.Log(ctx, q)
	return func(yield func(driver.Entry, error) bool) {
		n := 0
		defer func() { httpapi.CountRead(ctx, n) }()
		for entry, err := range log {
			if err == nil {
				n++
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}
