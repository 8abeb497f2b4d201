package plantest

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
)

// frozen is an engine whose clock stands until it is moved, so that two servers
// over it begin their operations at the same instant. It refuses commits: the
// second server would find what the first one wrote.
type frozen struct {
	driver.Engine
	at    atomic.Int64 // an Instant
	fault atomic.Pointer[fault]
}

// fault makes an engine fail where it reads one collection: for both servers,
// whatever they read at once.
type fault struct {
	collection string
	how        error // nil: it panics
}

// hits fails, or does not.
func (f *frozen) hits(collection string) error {
	fault := f.fault.Load()
	if fault == nil || fault.collection != collection {
		return nil
	}
	if fault.how == nil {
		panic("plantest: a fault in " + collection)
	}
	return fault.how
}

func (f *frozen) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if err := f.hits(collection); err != nil {
		return nil, err
	}
	return f.Engine.Get(ctx, collection, refs, fields)
}

func (f *frozen) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	if err := f.hits(q.Collection); err != nil {
		return nil, err
	}
	return f.Engine.Query(ctx, q)
}

func (f *frozen) Count(ctx context.Context, q *driver.Query) (int64, error) {
	if err := f.hits(q.Collection); err != nil {
		return 0, err
	}
	return f.Engine.Count(ctx, q)
}

func (f *frozen) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	for _, collection := range q.Collections {
		if err := f.hits(collection); err != nil {
			return func(yield func(*driver.Version, error) bool) { yield(nil, err) }
		}
	}
	return f.Engine.Log(ctx, q)
}

func (f *frozen) instant() driver.Instant { return driver.Instant(f.at.Load()) }

func (f *frozen) Now(ctx context.Context) (driver.Instant, error) {
	if err := ctx.Err(); err != nil {
		return 0, driver.Errorf(driver.CodeUnavailable, "the clock: %w", err)
	}
	return f.instant(), nil
}

func (f *frozen) Settle(_ context.Context, at driver.Instant) error {
	if now := f.instant(); at > now {
		return driver.Errorf(driver.CodeInvalid, "%s is later than the clock, %s", at, now)
	}
	return nil
}

func (*frozen) Commit(context.Context, []driver.Write) ([]*driver.Version, error) {
	return nil, driver.Errorf(driver.CodeUnavailable, "this engine only reads")
}
