package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/asof/asof/internal/capture"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

type archiveFlags struct {
	From    string `help:"The store to follow: a MongoDB database, or a file that no server has open." required:"" placeholder:"URL"`
	To      string `help:"The store that keeps what the other one has, and is made where it is not there." required:"" placeholder:"URL"`
	Once    bool   `help:"End when all that was committed before is there."`
	Verify  bool   `help:"The same, and compare both stores by the hashes of their histories; the exit status tells." env:"-"`
	Metrics string `help:"Address to serve /metrics at. Default: none." placeholder:"HOST:PORT"`
}

// archive follows a store into another one.
func (m *Main) archive(ctx context.Context) error {
	f := &m.flags.Archive
	source := m.of("export", f.From)
	if err := source.checkStore(); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	target, err := m.archiveIn("--to", f.To, f.From)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	g := m.newArchiving(registry, nil, source, target)
	if f.Once || f.Verify {
		err := g.follow(ctx, func(a *storage.Archive, added int64) (bool, error) { return true, m.caughtUp(ctx, g, a, added) })
		if err != nil && ctx.Err() != nil {
			return interruptedError{"interrupted; run it again to continue"}
		}
		return err
	}
	stop, err := serveMetrics(ctx, f.Metrics, registry)
	if err != nil {
		return err
	}
	defer stop()
	return g.run(ctx)
}

// serveMetrics serves metrics at an address, "" for none, until it is stopped.
func serveMetrics(ctx context.Context, addr string, registry *prometheus.Registry) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, usageError{fmt.Errorf("cannot listen on --metrics %s: %w", addr, err)}
	}
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadTimeout: headerTimeout}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

// of is the same run of the program with another command and store.
func (m *Main) of(command, store string) *Main {
	other := *m
	other.command, other.flags.Store = command, store
	return &other
}

// archiveIn returns what opens the store that an archive is kept in.
func (m *Main) archiveIn(flag, to, from string) (*Main, error) {
	target := m.of("import", to)
	if to == from {
		return nil, usageError{fmt.Errorf("%s %s is the store itself", flag, target.storeName())}
	}
	if err := target.checkStore(); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return target, nil
}

// caughtUp compares the stores where that is wanted, and says how it is.
func (m *Main) caughtUp(ctx context.Context, g *archiving, a *storage.Archive, added int64) error {
	from, to, how := g.source.storeName(), g.target.storeName(), ""
	if m.flags.Archive.Verify {
		differences, err := a.Verify(ctx)
		if err != nil {
			return err
		}
		for _, line := range differences {
			if _, err := fmt.Fprintln(m.Stdout, line); err != nil {
				return err
			}
		}
		if len(differences) > 0 {
			return fmt.Errorf("%s does not hold what %s does", to, from)
		}
		how = ", by the hashes of all histories"
	}
	_, err := fmt.Fprintf(m.Stdout, "%s added; %s holds what %s did at %s%s\n", plural(added, "version"), to, from, a.Reached(), how)
	return err
}

// startArchive has a server's store followed where --archive says so, and returns what ends that and waits
// for the end.
func (m *Main) startArchive(ctx context.Context, site *site) (stop func()) {
	if m.flags.Serve.Archive == "" {
		return func() {}
	}
	g := m.newArchiving(site.metrics, site.store, nil, m.of("import", m.flags.Serve.Archive))
	return background(ctx, func(ctx context.Context) { _ = g.run(ctx) }) // there is no error where a server goes on
}

// archiving follows one store into another one.
type archiving struct {
	from           *storage.Store // of a server; nil: that of source
	source, target *Main
	opened         bool // both were open once
	now            func() time.Time
	logger         *slog.Logger
	versions       prometheus.Counter
	archive        atomic.Pointer[storage.Archive] // the last one; nil: none yet
}

func (m *Main) newArchiving(registry *prometheus.Registry, from *storage.Store, source, target *Main) *archiving {
	g := &archiving{from: from, source: source, target: target, now: m.Now, logger: m.logger()}
	g.versions = prometheus.NewCounter(prometheus.CounterOpts{Name: "asof_archived_versions_total", Help: "Versions that were added to the archive."})
	registry.MustRegister(g.versions,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "asof_archive_lag_seconds", Help: "For how long the archive may lack what was committed."}, g.lagSeconds))
	return g
}

func (g *archiving) lagSeconds() float64 {
	if a := g.archive.Load(); a != nil {
		return lagOf(a.Reached(), g.now)
	}
	return math.NaN()
}

// lagOf is for how many seconds a store may lack something that has what there was at an instant; NaN where
// that is 0.
func lagOf(reached driver.Instant, now func() time.Time) float64 {
	if reached == 0 {
		return math.NaN()
	}
	return now().Sub(reached.Time()).Seconds()
}

// archivePause is how long archiving waits after a commit, for more that is loaded with it: so writers
// lose a third of their rate at most, and not half.
const archivePause = 100 * time.Millisecond

// run follows until the context ends. It returns the errors of a program of its own that do not pass by
// themselves: a server goes on, as its operator may fix what is wrong.
func (g *archiving) run(ctx context.Context) error {
	w := &waiting{into: g.target.storeName(), logger: g.logger}
	return w.run(ctx, func() error {
		return g.follow(ctx, func(*storage.Archive, int64) (bool, error) {
			w.goOn(ctx)
			return false, nil
		})
	}, func(err error) bool { return g.from != nil || g.opened && passes(err) })
}

// passes reports whether an error passes by itself: something is away, or another program does the same.
func passes(err error) bool {
	return slices.Contains([]driver.Code{driver.CodeUnavailable, driver.CodeConflict}, driver.CodeOf(err))
}

// waiting waits after errors of what is followed into a store.
type waiting struct {
	into   string
	logger *slog.Logger
	after  time.Duration // an error; 0: there was none
}

// How long it waits at first and at most.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = time.Minute
)

// run calls follow until the context ends, or there is an error that is not tried again.
func (w *waiting) run(ctx context.Context, follow func() error, again func(error) bool) error {
	for {
		err := follow()
		switch {
		case ctx.Err() != nil:
			return nil
		case !again(err):
			return err
		case w.after == 0:
			w.logger.WarnContext(ctx, "following waits; it is tried again at least every minute", "into", w.into, "error", err)
		}
		w.after = min(max(firstWait, 2*w.after), lastWait)
		wait(ctx, w.after)
	}
}

// goOn notes that there is no error.
func (w *waiting) goOn(ctx context.Context) {
	if w.after > 0 {
		w.logger.InfoContext(ctx, "following goes on", "into", w.into)
	}
	w.after = 0
}

// follow opens the stores and follows until there is an error or the context ends. It calls caughtUp
// whenever the archive has all, with how many versions were added since, and ends where that says so.
func (g *archiving) follow(ctx context.Context, caughtUp func(_ *storage.Archive, added int64) (done bool, err error)) (err error) {
	closing := func(s *storage.Store) { err = errors.Join(err, s.Engine().Close()) }
	from := g.from
	if from == nil {
		if from, err = g.source.openStore(ctx); err != nil {
			return err
		}
		defer closing(from)
	}
	to, err := g.target.openStore(ctx)
	if err != nil {
		return err
	}
	defer closing(to)
	a, err := storage.NewArchive(ctx, from, to)
	if err != nil {
		return err
	}
	g.opened = true
	g.archive.Store(a)
	grown := make(chan struct{}, 1)
	defer from.Notify(func() {
		select {
		case grown <- struct{}{}:
		default:
		}
	})()
	for {
		added, err := a.Follow(ctx)
		g.versions.Add(float64(added))
		if err != nil {
			return err
		}
		if done, err := caughtUp(a, added); done || err != nil {
			return err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil
		}
		if !wait(ctx, archivePause) {
			return nil
		}
	}
}

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
