package app

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/checkpoint"
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
	return background(ctx, func(ctx context.Context) {
		p.finish(ctx) // before anything is pruned
		var running sync.WaitGroup
		defer running.Wait()
		for _, t := range p.store.Types() {
			if t.Keep != nil && p.rate > 0 {
				running.Go(func() { p.run(ctx, t) })
			}
		}
		for wait(ctx, time.Minute) {
			p.finish(ctx)
		}
	})
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

// checkpoint prints the checkpoint of now.
func (m *Main) checkpoint(ctx context.Context) (err error) {
	key, err := readKey[ed25519.PrivateKey](m.flags.Checkpoint.PrivateKey, "--private-key")
	if err != nil {
		return err
	}
	engine, err := m.openEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	line, err := checkpointLine(ctx, engine, key)
	if err != nil {
		return err
	}
	_, err = m.Stdout.Write(line)
	return err
}

// checkpointLine makes the checkpoint of now, signed where there is a key: a line of JSON.
func checkpointLine(ctx context.Context, engine driver.Engine, key ed25519.PrivateKey) ([]byte, error) {
	now, err := engine.Now(ctx)
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.Make(ctx, engine, now)
	if err != nil {
		return nil, err
	}
	if key != nil {
		c.Sign(key)
	}
	line, err := json.Marshal(c)
	return append(line, '\n'), err
}

// checkpointEvery is how long a server waits before it makes another checkpoint, for which the
// whole log is read.
const checkpointEvery = time.Hour

// startCheckpoints has a server make checkpoints where --checkpoint-key says so, for GET /checkpoint.
// It returns what ends that and waits for the end.
func (m *Main) startCheckpoints(ctx context.Context, site *site) (stop func()) {
	if m.checkpointKey == nil {
		return func() {}
	}
	return background(ctx, func(ctx context.Context) {
		for pause := time.Duration(0); wait(ctx, pause); {
			pause = checkpointEvery
			line, err := checkpointLine(ctx, site.engine, m.checkpointKey)
			if err == nil {
				site.checkpoint.Store(&line)
			} else if ctx.Err() == nil {
				site.logger.WarnContext(ctx, "a checkpoint will be made in a minute", "error", err)
				pause = time.Minute
			}
		}
	})
}

// lastCheckpoint answers with the last checkpoint; 503 before the first one was made.
func (s *site) lastCheckpoint(w http.ResponseWriter, _ *http.Request) {
	line := s.checkpoint.Load()
	if line == nil {
		plain(w, http.StatusServiceUnavailable, "the first checkpoint is being made")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(*line) // a client that has gone
}

// verify compares the store with what was seen of it earlier.
func (m *Main) verify(ctx context.Context) (err error) {
	f := &m.flags.Verify
	var kept *checkpoint.Checkpoint
	hash, err := hex.DecodeString(f.Since)
	if err != nil {
		return usageError{fmt.Errorf("--since %s: want the hash of a version, 64 hexadecimal digits", f.Since)}
	}
	if f.Checkpoint != "" {
		key, err := readKey[ed25519.PublicKey](f.PublicKey, "--public-key")
		if err != nil {
			return err
		}
		text, err := os.ReadFile(f.Checkpoint)
		if err != nil {
			return usageError{fmt.Errorf("cannot read: %w", err)}
		}
		if kept, err = checkpoint.Parse(text, key); err != nil {
			return fmt.Errorf("%s: %w", f.Checkpoint, err)
		}
	}
	engine, err := m.openEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if kept == nil {
		found, err := checkpoint.VerifySince(ctx, engine, hash, f.Collection, f.Key)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(m.Stdout, "%s %q: version %d of %s is as it was, followed by %s\n", found.First.Collection, found.First.Key,
			found.First.Number, found.First.RecordedAt, plural(found.Last.Number-found.First.Number, "version"))
		return err
	}
	var problems []string
	if err := engine.Check(ctx, func(problem string) {
		if len(problems) < maxProblems {
			problems = append(problems, problem)
		}
	}); err != nil {
		return err
	}
	now, err := checkpoint.Make(ctx, engine, kept.At)
	if err != nil {
		return err
	}
	problems = append(problems, kept.Compare(now)...)
	for _, problem := range problems {
		if _, err := fmt.Fprintln(m.Stdout, problem); err != nil {
			return err
		}
	}
	if loaded, err := engine.Loaded(ctx); err == nil && loaded > kept.At && len(problems) > 0 {
		_, err = fmt.Fprintf(m.Stdout, "an import at %s added versions, which may be of before the checkpoint\n", loaded)
		if err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s is not what it was at %s", m.storeName(), kept.AtText)
	}
	_, err = fmt.Fprintf(m.Stdout, "%s holds what it held at %s: %s\n", m.storeName(), kept.AtText, kept.Root)
	return err
}

// maxProblems is how many problems of a check are kept to be printed.
const maxProblems = 100

// readKey reads a key of a kind from a file in PEM; none where no file is named.
func readKey[K ed25519.PrivateKey | ed25519.PublicKey](file, flag string) (key K, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: cannot read: %w", flag, err)}
	}
	wrong := usageError{fmt.Errorf("%s %s: want an Ed25519 key in PEM (openssl genpkey -algorithm ed25519; its public part: openssl pkey -pubout)", flag, file)}
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 && !slices.Equal(rest, []byte("\n")) {
		return nil, wrong
	}
	var parsed any
	if _, private := any(key).(ed25519.PrivateKey); private {
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	} else {
		parsed, err = x509.ParsePKIXPublicKey(block.Bytes)
	}
	key, ok := parsed.(K)
	if err != nil || !ok {
		return nil, wrong
	}
	return key, nil
}
