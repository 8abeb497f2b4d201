package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// countingEngine takes some time to count.
type countingEngine struct {
	driver.Engine
	now   *time.Time
	takes time.Duration
	asked int64
	err   error
}

func (e *countingEngine) Stats(context.Context) (driver.Stats, error) {
	e.asked++
	*e.now = e.now.Add(e.takes)
	return driver.Stats{Documents: e.asked}, e.err
}

// However often metrics are read, counting takes a hundredth of the time at most.
func TestStatisticsAreKept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	engine := &countingEngine{now: &now, takes: time.Second}
	c := &engineCollector{engine: engine, now: func() time.Time { return now }, logger: slog.New(slog.DiscardHandler)}
	for _, step := range []struct {
		after time.Duration
		takes time.Duration
		err   error
		asked int64
		none  bool
	}{
		{0, time.Second, nil, 1, false},
		{99 * time.Second, time.Second, nil, 1, false},
		{time.Second, 0, nil, 2, false},
		{0, 0, nil, 3, false}, // it took no time
		{0, statsTimeout, context.DeadlineExceeded, 4, true},
		{time.Minute, 0, nil, 4, true},
		{keptFor * statsTimeout, 0, nil, 5, false},
	} {
		now = now.Add(step.after)
		engine.takes, engine.err = step.takes, step.err
		stats := c.ask()
		if engine.asked != step.asked || (stats == nil) != step.none || stats != nil && stats.Documents != step.asked {
			t.Errorf("%+v: asked %d times, %+v", step, engine.asked, stats)
		}
	}
}
