package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asof/asof/internal/capture"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

type captureFlags struct {
	From        string            `help:"The database of MongoDB that other programs write to: a replica set or a sharded cluster, 5.0 or newer." required:"" placeholder:"URL"`
	Collection  string            `help:"The collection of it to follow." required:"" placeholder:"NAME"`
	To          string            `help:"The store that gets the histories, and is made where it is not there." required:"" placeholder:"URL"`
	Type        string            `help:"The type of its documents. Default: the one that is stored under the collection's name." placeholder:"TYPE"`
	Drop        []string          `help:"A member of the documents that is left out, or a.b of one within it; may be repeated." placeholder:"NAME"`
	Rename      map[string]string `help:"The stored name for a member of the documents, of the outermost level; may be repeated." placeholder:"NAME=STORED"`
	AuthorField string            `help:"The stored member that names who made a change. Without it the author is \"capture\"." placeholder:"STORED"`
	Filter      string            `help:"A condition, in MongoDB's JSON, on the documents when the capture begins or they are inserted; on what never changes." placeholder:"JSON"`
	Lenient     bool              `help:"Keep values of another type than the schema declares."`
	Once        bool              `help:"End when there was no change for half a second."`
	Metrics     string            `help:"Address to serve /metrics at. Default: none." placeholder:"HOST:PORT"`
}

// capture follows a collection of other programs into a store.
func (m *Main) capture(ctx context.Context) error {
	f := &m.flags.Capture
	target := m.of("import", f.To)
	if err := target.checkStore(); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	o := capture.Options{
		Drop: f.Drop, Rename: f.Rename, AuthorField: f.AuthorField, Filtered: f.Filter != "", Lenient: f.Lenient, Now: m.Now,
	}
	var names []string
	for _, t := range m.Types {
		names = append(names, t.Name)
		if t.Name == f.Type || f.Type == "" && t.Collection == f.Collection {
			o.Type = t
		}
	}
	if o.Type == nil {
		return usageError{fmt.Errorf("no type is named so: name the one that the documents of %s get with --type; the types are %s", f.Collection, strings.Join(names, ", "))}
	}
	registry := prometheus.NewRegistry()
	g := &capturing{Main: m, target: target, options: o}
	g.versions = prometheus.NewCounter(prometheus.CounterOpts{Name: "asof_captured_versions_total", Help: "Versions that were made."})
	registry.MustRegister(g.versions, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "asof_capture_lag_seconds", Help: "For how long the store may lack what was changed.",
	}, func() float64 { return lagOf(driver.Instant(g.reached.Load()), m.Now) }))
	stop, err := serveMetrics(ctx, f.Metrics, registry)
	if err != nil {
		return err
	}
	defer stop()
	w := &waiting{into: target.storeName(), logger: m.logger()}
	err = w.run(ctx, func() error { return g.follow(ctx, w) }, func(err error) bool { return g.opened && !f.Once && passes(err) })
	if f.Once && ctx.Err() != nil {
		return interruptedError{"interrupted; run it again to continue"}
	}
	return err
}

// capturing is one run of the command.
type capturing struct {
	*Main
	target   *Main
	options  capture.Options
	opened   bool // both were open once
	versions prometheus.Counter
	reached  atomic.Int64
}

// follow opens both and follows until there is an error or the context ends; with --once, until
// there is nothing more.
func (g *capturing) follow(ctx context.Context, w *waiting) (err error) {
	f := &g.flags.Capture
	store, err := g.target.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Engine().Close()) }()
	source, err := mongostore.OpenSource(ctx, f.From, f.Collection, f.Filter)
	if err != nil {
		return err
	}
	defer source.Close()
	c, err := capture.New(ctx, store, source, g.options)
	if err != nil {
		return err
	}
	g.opened = true
	for total := int64(0); ; {
		added, idle, err := c.Step(ctx)
		if ctx.Err() != nil {
			return c.End(ctx)
		}
		if err != nil {
			return err
		}
		w.goOn(ctx)
		total += added
		g.versions.Add(float64(added))
		g.reached.Store(int64(c.Reached()))
		if !idle || !f.Once {
			continue
		}
		if err := c.Note(ctx); err != nil {
			return err
		}
		_, err = fmt.Fprintf(g.Stdout, "%s added; %s holds what %s of %s did at %s\n",
			plural(total, "version"), g.target.storeName(), f.Collection, mongostore.Name(f.From), c.Reached())
		return err
	}
}
