package app

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/internal/plan"
	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// Bounds of what a connection may take, beside those of operations.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	answerTimeout = 30 * time.Second // to send it
	idleTimeout   = 2 * time.Minute
	headerBytes   = 12 << 10 // and 4 KB that http.Server adds: a request without its body has at most 16 KB
)

// serve answers requests until the context ends; then it finishes those that
// it accepted. Until the store is open, it answers that it is not.
func (m *Main) serve(ctx context.Context) (err error) {
	if err := m.prepare(); err != nil {
		return err
	}
	if err := m.checkStore(); err != nil {
		return err
	}
	if to := m.flags.Serve.Archive; to != "" {
		if _, err := m.archiveIn("--archive", to, m.flags.Store); err != nil {
			return err
		}
	}
	if m.flags.Serve.Demo {
		if err := demo.Fits(m.Types); err != nil {
			return usageError{err}
		}
	}
	// Before a store is created, so that a server that cannot listen leaves none behind.
	listener, err := m.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // again, where it was served
	logger := m.logger()
	startup := newStartup(m.flags.Serve.CORSOrigin)
	server := &http.Server{
		Handler:           startup,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,                                                             // a body that does not come with the header has its own
		WriteTimeout:      headerTimeout + bodyTimeout + 2*m.flags.Serve.Limits.Time + answerTimeout, // a long answer has its own
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	bound := httpapi.BoundConnections(server, listener, requestMemory(m.flags.Serve.Limits.memory()), clientAt)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(bound) }()
	defer func() { _ = server.Close() }() // again, where it was shut down
	site, greeting, err := m.openSite(ctx, listener.Addr().String(), logger)
	switch {
	case err != nil && ctx.Err() != nil:
		logger.Info("shutting down: the store was not open yet", "error", err)
		return m.shutDown(context.WithoutCancel(ctx), server, nil)
	case err != nil:
		return err
	}
	// One thread more than the places are for: while a slow operation and the collector run on
	// two, Go would look for the next request only when one of these has run for some 10 ms. Not
	// where a container has less time than there are processors: it would be stopped sooner.
	if processors := runtime.GOMAXPROCS(0); processors == runtime.NumCPU() {
		runtime.GOMAXPROCS(processors + 1)
		defer runtime.GOMAXPROCS(processors)
	}
	defer func() { err = errors.Join(err, site.engine.Close()) }()
	if pruning := newPruning(site.store, m.flags.Serve.PruneRate, m.Now, site.metrics, logger); !m.flags.Serve.ReadOnly {
		defer pruning.start(ctx)()
	}
	defer m.startArchive(ctx, site)()
	defer m.startCheckpoints(ctx, site)()
	defer limitMemory(m.flags.Serve.Limits.memory())()
	startup.ready(site)
	server.RegisterOnShutdown(site.api.Stop) // their connections are never idle
	if _, err := fmt.Fprintln(m.Stdout, greeting); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	site.shutting.Store(true)
	logger.Info("shutting down: finishing what was accepted")
	return m.shutDown(context.WithoutCancel(ctx), server, site.api)
}

// openSite opens the store, and returns the site over it, with the greeting.
func (m *Main) openSite(ctx context.Context, addr string, logger *slog.Logger) (_ *site, greeting string, err error) {
	store, err := m.openStore(ctx)
	if err != nil {
		return nil, "", err
	}
	engine := store.Engine()
	defer func() {
		if err != nil {
			err = errors.Join(err, engine.Close())
		}
	}()
	if m.flags.Serve.Demo {
		if _, err := demo.Fill(ctx, store); err != nil {
			return nil, "", err
		}
	}
	stats, err := engine.Stats(ctx)
	if err != nil {
		return nil, "", err
	}
	warnUndeclared(ctx, logger, store, stats)
	site, err := m.newSite(store, logger)
	if err != nil {
		return nil, "", err
	}
	m.warnAhead(ctx, logger, engine)
	greeting, err = m.greeting(ctx, addr, engine, stats)
	return site, greeting, err
}

// maxAhead is how far the store's clock may be ahead of this machine's without a warning.
const maxAhead = time.Second

// warnAhead warns when the store's clock is ahead of this machine's: the database's clock is, or
// a clock was wrong when the store was last written, since commits get times after those that it
// has.
func (m *Main) warnAhead(ctx context.Context, logger *slog.Logger, engine driver.Engine) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	present, err := engine.Now(ctx) // where that fails, operations find out
	if by := present.Time().Sub(m.Now()); err == nil && by > maxAhead {
		logger.WarnContext(ctx, "the store's clock is ahead of this machine's, and versions get its times; look which of the two is wrong, and what asof check says",
			"store", present, "machine", driver.InstantOf(m.Now()), "ahead", by)
	}
}

func (m *Main) listen(ctx context.Context) (net.Listener, error) {
	addr := m.flags.Serve.Addr
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on --addr %s: another program does, or asof itself is running already; "+
			"end that one, or choose another port, as in --addr 127.0.0.1:8081", addr)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on --addr %s: %w", addr, err)
	}
	return listener, nil
}

// prepare refuses flags that contradict each other, and files of theirs that cannot be read,
// before anything is opened.
func (m *Main) prepare() (err error) {
	f := &m.flags.Serve
	if err := f.check(); err != nil {
		return err
	}
	if m.checkpointKey, err = readKey[ed25519.PrivateKey](f.CheckpointKey, "--checkpoint-key"); err != nil {
		return err
	}
	m.verifier, err = f.Auth.verifier(m.Now, m.logger())
	return err
}

// check refuses flags that contradict each other.
func (f *serveFlags) check() error {
	if err := checkAddress(f.Addr, !f.local()); err != nil {
		return err
	}
	if err := f.Auth.check(); err != nil {
		return err
	}
	if f.InsecureNoAuth && len(f.Auth.Auth) > 0 {
		return usageError{errors.New("--auth and --insecure-no-auth contradict each other")}
	}
	if f.Proxies < 0 || f.CachePast < 0 || f.PruneRate < 0 {
		return usageError{errors.New("--proxies, --cache-past and --prune-rate must not be negative")}
	}
	for _, origin := range f.CORSOrigin {
		if err := httpapi.CheckOrigin(origin); err != nil {
			return usageError{fmt.Errorf("--cors-origin: %w", err)}
		}
	}
	return nil
}

// newSite puts together everything that is served.
func (m *Main) newSite(store *storage.Store, logger *slog.Logger) (*site, error) {
	s := &site{
		store:    store,
		engine:   store.Engine(),
		metrics:  newRegistry(store.Engine(), m.Now, logger),
		origins:  m.flags.Serve.CORSOrigin,
		anyHost:  !m.flags.Serve.local(),
		verifier: m.verifier,
		noSchema: !m.flags.Serve.Introspection || m.flags.Serve.Trusted.Documents != nil,
		logger:   logger,
		signs:    m.checkpointKey != nil,
	}
	var err error
	if s.api, err = m.api(store, s, logger); err != nil {
		return nil, err
	}
	if err := s.assemble(m.Types); err != nil {
		return nil, err
	}
	return s, nil
}

// distantSlow is how many slow operations are executed at a time by an engine that waits for others, as
// far as there are 48 MB of the memory for requests for each.
func distantSlow(concurrent int, memory int64) int {
	return max(min(concurrent/4, int(memory/(48<<20))), 1)
}

// api serves the schema over the store.
func (m *Main) api(store *storage.Store, site *site, logger *slog.Logger) (*httpapi.Handler, error) {
	f := &m.flags.Serve
	schema := httpapi.BoundAnswers(loading{m.Schema(store), store}, f.Limits.limits())
	site.schema = schema.Schema()
	if f.Executor == "plan" {
		schema = plan.New(schema, store, plan.Config{Observe: httpapi.NotePlan, MaxAnswer: int(f.Limits.Answer), MaxErrors: httpapi.MostErrors, Document: httpapi.DocumentBytes, Memory: httpapi.CountAnswer})
	}
	limits, processors := f.Limits.limits(), runtime.GOMAXPROCS(0)
	limits.Fast, limits.PerClient, limits.PerClientWrite = min(limits.Concurrent, 2*processors), max(processors-1, 1), 2*processors
	slow := max(processors/2, 1)
	if _, distant := driver.As[driver.Distant](store.Engine()); distant { // it waits for others, and does not keep processors
		limits.SlowAfter, limits.Execution, limits.Fast, limits.PerClient, limits.PerClientWrite = 100*time.Millisecond, limits.Time, limits.Concurrent, 0, 0
		slow = distantSlow(limits.Concurrent, limits.Memory)
	}
	limits.Slow = cmp.Or(limits.Slow, slow)
	ops := operations{store}
	api, err := httpapi.New(httpapi.Config{
		Schema:        schema,
		Operations:    ops,
		Subscribe:     ops.subscribe,
		Notify:        store.Notify,
		Identify:      f.identify(m.verifier),
		Present:       ErrorPresenter(logger),
		Recover:       Recover(logger),
		Weight:        weight,
		Pinned:        pinned,
		CachePast:     f.CachePast,
		Client:        clientAddress(f.Proxies),
		Limits:        limits,
		Origins:       f.CORSOrigin,
		Introspection: !site.noSchema,
		Trusted:       f.Trusted.Documents,
		Logger:        logger,
		Now:           m.Now,
		CPU:           cpuTime,
		Slow:          f.SlowOperation,
		Debug:         f.local(),
		Metrics:       site.metrics,
	})
	if err != nil && f.Trusted.Documents != nil { // check has looked at the other flags
		err = usageError{fmt.Errorf("--trusted-documents %s: %w", f.Trusted.Path, err)}
	}
	return api, err
}

// background runs a function until the returned one is called, which waits for its end.
func background(ctx context.Context, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// shutDown stops accepting, waits for what was accepted and closes what is
// left after the time for that. There is no api where the store was not open.
func (m *Main) shutDown(ctx context.Context, server *http.Server, api *httpapi.Handler) error {
	ctx, cancel := context.WithTimeout(ctx, m.flags.Serve.ShutdownTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if err == nil && api != nil {
		err = api.Drain(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("shutting down: some operations did not end in %v: %w", m.flags.Serve.ShutdownTimeout, err), server.Close())
	}
	return nil
}

// Handler returns everything that `asof serve` with these flags serves, over an
// engine that is open already and stays the caller's: --store, --addr and --demo
// have no meaning here. It is for programs that bring an engine of their own, or
// ask several servers about one. It is called once.
func (m *Main) Handler(engine driver.Engine, flags ...string) (http.Handler, error) {
	done, err := m.ParseFlags(append([]string{"serve"}, flags...))
	if err != nil {
		return nil, err
	}
	if done {
		return nil, usageError{fmt.Errorf("the flags %q leave nothing to serve", flags)}
	}
	if err := m.prepare(); err != nil {
		return nil, err
	}
	logger := m.logger()
	store, err := storage.New(counted(engine), m.Types, storage.WithLogger(logger), storage.WithLimits(m.flags.Serve.Limits.storage()), storage.WithSpent(httpapi.Spent), storage.WithMemory(httpapi.CountAnswer))
	if err != nil {
		return nil, err
	}
	site, err := m.newSite(store, logger)
	if err != nil {
		return nil, err
	}
	return site.handler, nil
}

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

// greeting returns where the server listens, and a first query.
func (m *Main) greeting(ctx context.Context, addr string, engine driver.Engine, stats driver.Stats) (string, error) {
	base := "http://" + addr
	text := fmt.Sprintf("asof serves %s (%s, %s)\n\n  Playground  %s/\n  GraphQL     %s/graphql\n",
		m.storeName(), held(stats), heldVersions(stats), base, base)
	_, _, versions := storage.Held(stats)
	switch {
	case versions == 0 && demo.Fits(m.Types) == nil:
		text += "\nThe store is empty. Fill it with \"asof import FILE\", or start with --demo to look around.\n"
	case versions == 0:
		text += "\nThe store is empty. Fill it with \"asof import FILE\" or by mutations; the Playground has a first query.\n"
	case m.flags.Serve.Demo:
		there, err := demo.Filled(ctx, engine)
		if err != nil {
			return "", err
		}
		if there {
			text += firstQuery(base)
		} else {
			text += "\nThe store has documents of its own, so --demo left it as it is. For the demo, name another one with --store.\n"
		}
	}
	return text, nil
}

// firstQuery returns a query for a document in the past and now, and for who changed it.
func firstQuery(base string) string {
	return fmt.Sprintf(`
A first query, for the Playground or as it is here: the license of Lanternfish
in the summer of 2025 and now, and who changed it.

  curl -sG %s/graphql --data-urlencode 'query={
    summer: project(key: "lanternfish", asOf: "2025-07-01T00:00:00Z") { version licenses { name } }
    now: project(key: "lanternfish") { version licenses { name }
      blame(fields: [licenses]) { path changedBy { id } changedAt message } }
  }'
`, base)
}

// mostExampleFields is how many fields of a document the example asks for.
const mostExampleFields = 6

// playground is what the Playground has to know. Its ready queries are for the
// demo: where the schema does not answer them, or the store does not hold what they
// ask for, it begins with another query.
func (s *site) playground(types []*record.Type) (web.Options, error) {
	fit, err := web.TabsFit(s.schema)
	if err != nil {
		return web.Options{}, err
	}
	options := web.Options{NoIntrospection: s.noSchema}
	if len(types) == 0 {
		return options, nil
	}
	options.Example = example(s.schema, types)
	if fit {
		options.IsDemo = s.holdsDemo
	}
	return options, nil
}

// holdsDemo reports whether the store holds the demo's catalogue. A store that cannot
// be asked may.
func (s *site) holdsDemo(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	filled, err := demo.Filled(ctx, s.engine)
	return filled || err != nil
}

// example is a query that any schema answers, made from the first type.
func example(schema *ast.Schema, types []*record.Type) *web.Tab {
	first := types[0]
	about := fmt.Sprintf(`# First look: the documents of the type %s, now or at an instant in
# the variables, such as "2026-01-31T12:00:00Z", and what was done to each.
`, first.Name)
	query := fmt.Sprintf(`query FirstLook($asOf: DateTime) {
  %s(asOf: $asOf, first: 10) {
    totalCount
    nodes {
      %s
      versions(first: 3) {
        nodes { version versionInfo { recordedAt operation author { id } message } }
      }
    }
  }
}
`, first.Plural, strings.Join(exampleFields(schema, first), " "))
	return &web.Tab{Name: "first-look", Query: about + query, Variables: json.RawMessage(`{"asOf": null}`)}
}

// exampleFields are fields of a type that need neither arguments nor fields.
func exampleFields(schema *ast.Schema, of *record.Type) []string {
	fields := []string{"id", "version"}
	definition := schema.Types[of.Name]
	if definition == nil {
		return fields
	}
	for _, f := range of.Fields {
		declared := definition.Fields.ForName(f.Name)
		if declared == nil || len(declared.Arguments) > 0 || slices.Contains(fields, f.Name) {
			continue
		}
		if kind := schema.Types[declared.Type.Name()]; kind != nil && kind.IsLeafType() && len(fields) < mostExampleFields {
			fields = append(fields, f.Name)
		}
	}
	return fields
}
