package app

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
)

// counting is an engine that counts the versions that each operation reads.
type counting struct{ driver.Engine }

type readsKey struct{}

// withReads makes a place to count in.
func withReads(ctx context.Context) context.Context {
	return context.WithValue(ctx, readsKey{}, new(atomic.Int64))
}

// reads is what was counted; 0 where nothing was.
func reads(ctx context.Context) int64 {
	if n, ok := ctx.Value(readsKey{}).(*atomic.Int64); ok {
		return n.Load()
	}
	return 0
}

func count(ctx context.Context, n int) {
	if total, ok := ctx.Value(readsKey{}).(*atomic.Int64); ok {
		total.Add(int64(n))
	}
}

func (c counting) Get(ctx context.Context, collection string, refs []driver.Ref) ([]*driver.Version, error) {
	versions, err := c.Engine.Get(ctx, collection, refs)
	found := 0
	for _, v := range versions {
		if v != nil {
			found++
		}
	}
	count(ctx, found)
	return versions, err
}

func (c counting) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	versions, err := c.Engine.Query(ctx, q)
	count(ctx, len(versions))
	return versions, err
}

func (c counting) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[driver.Entry, error] {
	log := c.Engine.Log(ctx, q)
	return func(yield func(driver.Entry, error) bool) {
		n := 0
		defer func() { count(ctx, n) }()
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
