package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/asof/asof/storage/driver"
)

// newRegistry measures the process and what the engine holds.
func newRegistry(engine driver.Engine, now func() time.Time, logger *slog.Logger) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		&engineCollector{engine: engine, now: now, logger: logger},
	)
	return registry
}

// engineCollector asks the engine for its statistics when metrics are read, unless that
// took long: an answer is kept for keptFor times as long as it took, so that readers of
// metrics, however many, take a small part of the database's time.
type engineCollector struct {
	engine driver.Engine
	now    func() time.Time
	logger *slog.Logger

	mu    sync.Mutex // held while the engine is asked
	stats *driver.Stats
	until time.Time // up to it stats are kept, also that there are none
}

const keptFor = 100

const statsTimeout = 5 * time.Second

func engineGauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("asof_store_"+name, help, nil, nil)
}

// Describe names the metrics.
func (c *engineCollector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
}

// Collect sends them; none when the engine cannot be reached.
func (c *engineCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.ask()
	if stats == nil {
		return
	}
	gauge := func(name, help string, value int64) {
		metrics <- prometheus.MustNewConstMetric(engineGauge(name, help), prometheus.GaugeValue, float64(value))
	}
	gauge("documents", "Documents in the store that are not deleted.", stats.Documents)
	gauge("versions", "Versions in the store.", stats.Versions)
	gauge("bytes", "Bytes that the store takes on disk.", stats.Bytes)
	if stats.Commits > 0 {
		counter := func(name, help string, value int64) {
			metrics <- prometheus.MustNewConstMetric(engineGauge(name, help), prometheus.CounterValue, float64(value))
		}
		counter("writes_total", "Writes that were handled since the start.", stats.Writes)
		counter("commits_total", "Transactions that they shared; writes divided by commits is the size of a batch.", stats.Commits)
	}
}

// ask returns the statistics; nil where the engine could not be reached.
func (c *engineCollector) ask() *driver.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.now()
	if began.Before(c.until) {
		return c.stats
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	stats, err := c.engine.Stats(ctx)
	ended := c.now()
	c.stats, c.until = &stats, ended.Add(keptFor*ended.Sub(began))
	if err != nil {
		c.logger.WarnContext(ctx, "no statistics of the store", "cause", err)
		c.stats = nil
	}
	return c.stats
}
