package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage"
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
	documents, drafts, versions := storage.Held(*stats)
	gauge("documents", "Documents in the store that are not deleted.", documents)
	gauge("drafts", "Drafts that were neither approved nor discarded.", drafts)
	gauge("versions", "Versions in the store.", versions)
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

// logger writes to standard error.
func (m *Main) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(m.flags.LogLevel)) // one of those that the flag may have
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: clipped}
	if m.flags.LogFormat == "json" {
		options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr { return inSeconds(clipped(groups, a)) }
		return slog.New(named{slog.NewJSONHandler(m.Stderr, options)})
	}
	return slog.New(named{slog.NewTextHandler(m.Stderr, options)})
}

// clipped bounds each value of the log, since clients choose some. A stack is the program's own
// text.
func clipped(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if a.Key != "stack" {
			a.Value = slog.StringValue(httpapi.Clip(a.Value.String()))
		}
	case slog.KindAny: // an error, a list
		if text := a.Value.String(); a.Key != slog.LevelKey && httpapi.Clip(text) != text {
			a.Value = slog.StringValue(httpapi.Clip(text))
		}
	default: // short
	}
	return a
}

// inSeconds names the unit of a duration, which is a bare number in JSON.
func inSeconds(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"Seconds", a.Value.Duration().Seconds())
	}
	return a
}

// named is a log whose lines name the request in which they were written.
type named struct{ slog.Handler }

func (n named) Handle(ctx context.Context, r slog.Record) error {
	if request := httpapi.RequestID(ctx); request != "" {
		r.AddAttrs(slog.String("request", request))
	}
	return n.Handler.Handle(ctx, r)
}

func (n named) WithAttrs(attrs []slog.Attr) slog.Handler { return named{n.Handler.WithAttrs(attrs)} }

func (n named) WithGroup(name string) slog.Handler { return named{n.Handler.WithGroup(name)} }

// warnUndeclared logs which collections of the store no type of the schema
// declares: after a change of schema.graphqls, or with the store of another
// program, they would just seem to be gone.
func warnUndeclared(ctx context.Context, logger *slog.Logger, store *storage.Store, stats driver.Stats) {
	types := store.ByCollection()
	for _, c := range stats.Collections {
		if types[c.Name] == nil {
			logger.WarnContext(ctx, "the store holds a collection that the schema does not declare: it is kept, and in exports, but no request reaches it; "+
				"to see it, declare a type with @versioned(collection:) in schema.graphqls, run go generate ./... and start again",
				"collection", c.Name, "documents", c.Documents, "versions", c.Versions)
		}
	}
}
