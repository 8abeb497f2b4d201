package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

type pruneFlags struct {
	DryRun bool `help:"Say what would be pruned, and change nothing."`
}

// prune prunes all versions that the schema does not keep, finishes what was being erased, and has the
// engine give the space back.
func (m *Main) prune(ctx context.Context, store *storage.Store) (err error) {
	none, dry := true, m.flags.Prune.DryRun
	if !dry { // and prune what can be, where it fails
		defer func(failed error) { err = errors.Join(failed, err) }(store.FinishErasures(ctx))
	}
	for _, t := range store.Types() {
		p := store.NewPruner(t, dry)
		if p == nil {
			continue
		}
		none = false
		versions, documents := 0, 0
		for more := true; more; {
			done, err := p.Step(ctx)
			if err != nil {
				return fmt.Errorf("pruning %s: %w", t.Name, err)
			}
			versions, documents, more = versions+done.Versions, documents+done.Documents, done.More
		}
		text := fmt.Sprintf("%s: pruned %s\n", t.Name, plural(int64(versions), "version"))
		if dry {
			text = fmt.Sprintf("%s: %s of %s would be pruned, superseded more than an hour ago\n", t.Name, plural(int64(versions), "version"), plural(int64(documents), "document"))
		}
		if _, err := fmt.Fprint(m.Stdout, text); err != nil {
			return err
		}
	}
	if none {
		_, err := fmt.Fprintln(m.Stdout, "nothing is pruned: all types keep all versions; to keep fewer, write @versioned(keep: {versions: 10}) or keep: {for: \"P2Y\"} in schema.graphqls")
		if err != nil {
			return err
		}
	}
	if dry {
		return nil
	}
	return compact(ctx, store)
}

// compact has the engine give the space back of what was pruned or erased.
func compact(ctx context.Context, store *storage.Store) error {
	if compacter, ok := driver.As[driver.Compacter](store.Engine()); ok {
		return compacter.Compact(ctx)
	}
	return nil
}

// pruneEvery is how long a server that has pruned all that was due waits: each time that more is
// due makes a version of the document that says how far.
const pruneEvery = time.Hour

// pruneRest is for how many times as long as pruning took it rests, so that others have nine tenths
// of the time.
const pruneRest = 9

// pruning prunes in the background what the schema does not keep, at most so many versions a
// second, and finishes what was being erased when a server was stopped. Several servers of one database
// take turns: who loses a step leaves it to the other.
type pruning struct {
	store    *storage.Store
	rate     int
	now      func() time.Time
	logger   *slog.Logger
	versions *prometheus.CounterVec
	horizon  *prometheus.GaugeVec
}

func newPruning(store *storage.Store, rate int, now func() time.Time, registry *prometheus.Registry, logger *slog.Logger) *pruning {
	p := &pruning{
		store: store, rate: rate, now: now, logger: logger,
		versions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "asof_pruned_versions_total", Help: "Versions that this server has pruned."}, []string{"type"}),
		horizon:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "asof_prune_horizon_seconds", Help: "From when on lists of a type are complete, in seconds since 1970."}, []string{"type"}),
	}
	registry.MustRegister(p.versions, p.horizon)
	return p
}

// start begins to prune, and returns what ends that and waits for the end.
func (p *pruning) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		p.finish(ctx) // before anything is pruned
		for _, t := range p.store.Types() {
			if t.Keep != nil && p.rate > 0 {
				running.Go(func() { p.run(ctx, t) })
			}
		}
		for wait(ctx, time.Minute) {
			p.finish(ctx)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// finish finishes erasures. Most are finished by who asked for them.
func (p *pruning) finish(ctx context.Context) {
	if err := p.store.FinishErasures(ctx); err != nil && ctx.Err() == nil {
		p.logger.WarnContext(ctx, "erasing will go on in a minute", "error", err)
	}
}

// wait reports whether the context has not ended before so long.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (p *pruning) run(ctx context.Context, t *record.Type) {
	pruner, began := p.store.NewPruner(t, false), p.now()
	pruner.Rest = func() {
		wait(ctx, min(pruneRest*p.now().Sub(began), time.Minute))
		began = p.now()
	}
	for {
		first := p.now()
		done, err := pruner.Step(ctx)
		if ctx.Err() != nil {
			return
		}
		p.versions.WithLabelValues(t.Name).Add(float64(done.Versions))
		if horizon, err := p.store.HorizonOf(ctx, t); err == nil && horizon > 0 {
			p.horizon.WithLabelValues(t.Name).Set(float64(horizon) / 1e6)
		}
		if done.Versions == 0 {
			pruner.Rest()
		}
		pause := max(time.Second*time.Duration(done.Versions)/time.Duration(p.rate)-p.now().Sub(first), 10*time.Millisecond)
		if err != nil {
			p.logger.WarnContext(ctx, "pruning will go on in a minute", "type", t.Name, "error", err)
			pause = time.Minute
		} else if !done.More {
			pause = pruneEvery
		}
		if !wait(ctx, pause) {
			return
		}
		began = began.Add(pause)
	}
}

type eraseFlags struct {
	Author string `required:"" placeholder:"ID" help:"Whose name is replaced: the author's id."`
	Name   string `required:"" placeholder:"NEW" help:"What the author is called from now on, in all of the past, too."`
}

// Validate refuses no name.
func (f eraseFlags) Validate() error {
	if f.Author != "" && f.Name == "" {
		return errors.New("--name: an author without a name has an empty line in every list; give another one")
	}
	return nil
}

// erase replaces the name of an author, and has the engine give the space of the others back.
func (m *Main) erase(ctx context.Context, store *storage.Store) error {
	f := &m.flags.Erase
	if err := store.ReplaceName(ctx, f.Author, f.Name); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(m.Stdout, "the author %s is called %s\n", f.Author, f.Name); err != nil {
		return err
	}
	return compact(ctx, store)
}
