package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asof/asof/storage/driver"
)

// farAhead is how far the store's clock may be ahead of this machine's before that is
// told.
const farAhead = time.Second

// ahead tells when the store's clock is found ahead of this machine's: its database's
// is, or a clock was wrong when the store was last written, and commits get times
// after those that it has. It is told once, until the clocks agree again.
type ahead struct {
	now    func() time.Time
	logger *slog.Logger
	warned atomic.Bool
	// fine is an instant that was not far ahead, in microseconds: this machine's clock need
	// not be asked before the store's is beyond that.
	fine atomic.Int64
}

// look compares an instant that the store says is present.
func (a *ahead) look(ctx context.Context, present driver.Instant) {
	if int64(present) <= a.fine.Load() && !a.warned.Load() {
		return
	}
	now := a.now()
	a.fine.Store(int64(driver.InstantOf(now.Add(farAhead))))
	by := present.Time().Sub(now)
	if is := by > farAhead; is != a.warned.Load() && a.warned.CompareAndSwap(!is, is) && is {
		a.logger.WarnContext(ctx, "the store's clock is ahead of this machine's, and versions get its times; look which of the two is wrong, and what asof check says",
			"store", present, "machine", driver.InstantOf(now), "ahead", by)
	}
}
