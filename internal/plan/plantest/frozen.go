package plantest

import (
	"context"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
)

// frozen is an engine whose clock stands until it is moved, so that two servers
// over it begin their operations at the same instant. It refuses commits: the
// second server would find what the first one wrote.
type frozen struct {
	driver.Engine
	at atomic.Int64 // an Instant
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

func (*frozen) Commit(context.Context, *driver.Write) (*driver.Version, error) {
	return nil, driver.Errorf(driver.CodeUnavailable, "this engine only reads")
}
