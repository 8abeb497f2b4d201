package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/sqlitestore"
)

// checkStore refuses a --store that cannot be opened, as far as that is known without creating
// anything.
func (m *Main) checkStore() error {
	name := m.flags.Store
	scheme, rest, ok := strings.Cut(name, ":")
	switch {
	case ok && scheme == "sqlite" && strings.HasPrefix(rest, "//"):
		return usageError{fmt.Errorf("--store %s: for a file of the directory asof runs in write sqlite:%s, and for one of the root sqlite:/%[2]s", name, strings.TrimLeft(rest, "/"))}
	case ok && scheme == "sqlite" && rest != "":
		if path, _, found := strings.Cut(rest, "?"); found && !isThere(rest) {
			return usageError{fmt.Errorf("--store %s: a path to a file has no parameters; write --store sqlite:%s", name, path)}
		}
		if dir := filepath.Dir(rest); !isDirectory(dir) {
			return fmt.Errorf("there is no directory %s for the store (see --store)", dir)
		}
		return nil
	case scheme == "mongodb": // of mongodb+srv, the hosts have to be looked up
		return m.checkMongo()
	case scheme == "mongodb+srv":
		return nil
	case name != "" && unknownStore(name) == name:
		return usageError{fmt.Errorf("--store %s: want sqlite:PATH or mongodb://HOST/DATABASE; for this file write --store sqlite:%s", name, name)}
	default:
		return usageError{fmt.Errorf("--store %s: want sqlite:PATH, such as sqlite:./asof.db, or mongodb://HOST/DATABASE", unknownStore(name))}
	}
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// openEngine opens the store that --store names.
func (m *Main) openEngine(ctx context.Context) (driver.Engine, error) {
	if err := m.checkStore(); err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(m.flags.Store, "sqlite:"); ok {
		return m.openSQLite(ctx, path)
	}
	return m.openMongo(ctx, m.flags.Store)
}

// verified is of how many reads one is verified, by --verify; 0: none.
var verified = map[string]int64{"sampled": 1000, "always": 1}

// openStore opens the engine and gives its documents their types.
func (m *Main) openStore(ctx context.Context) (*storage.Store, error) {
	engine, err := m.openEngine(ctx)
	if err != nil {
		return nil, err
	}
	if every := verified[m.flags.Serve.Verify]; m.command == "serve" && every > 0 {
		engine = storage.VerifyReads(engine, every)
	}
	store, err := m.typed(ctx, engine)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return store, nil
}

// typed gives the documents of an engine their types.
func (m *Main) typed(ctx context.Context, engine driver.Engine) (*storage.Store, error) {
	store, err := storage.New(counted(engine), m.Types, storage.WithLogger(m.logger()), storage.WithLimits(m.flags.Serve.Limits.storage()), storage.WithSpent(httpapi.Spent), storage.WithMemory(httpapi.CountAnswer), storage.WithMigrations(m.Migrations))
	if err == nil {
		err = store.LearnPruned(ctx)
	}
	if err == nil && m.SDL != "" {
		writes := m.command == "serve" && !m.flags.Serve.ReadOnly || m.command == "schema apply"
		var other string
		if other, err = store.UseSchema(ctx, m.SDL, writes); other != "" {
			m.logger().WarnContext(ctx, "the store was opened with another schema before; the command says what has changed since, and which documents cannot be read any more", "command", m.diffCommand(other))
		}
	}
	return store, err
}

// diffCommand is how to compare an earlier schema with today's.
func (m *Main) diffCommand(number string) string {
	command := "asof schema diff " + number
	if m.flags.Store != "sqlite:./asof.db" {
		command += " --store " + m.storeName()
	}
	if strings.HasPrefix(m.flags.Store, "sqlite:") {
		command += " (stop the server first)"
	}
	return command
}

// openSQLite opens the store in a file, and makes one where the command may.
func (m *Main) openSQLite(ctx context.Context, path string) (driver.Engine, error) {
	if !m.makesStore() {
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, usageError{fmt.Errorf("there is no store at %s (see --store)", path)}
		case err == nil && info.Size() == 0 && info.Mode().IsRegular() && isEmpty(path+"-wal"):
			return nil, fmt.Errorf("%s is an empty file, and no store (see --store); if it was one, restore it from a backup", path)
		}
	}
	return sqlitestore.Open(ctx, path, m.sqliteOptions())
}

// readOnly reports whether the command leaves the store as it is.
func (m *Main) readOnly() bool {
	return !m.makesStore() && !m.flags.Check.Repair && m.command != "erase" && m.command != "schema apply" && (m.command != "prune" || m.flags.Prune.DryRun)
}

// makesStore reports whether the command makes a store where there is none.
func (m *Main) makesStore() bool { return m.command == "serve" || m.command == "import" }

func (m *Main) sqliteOptions() sqlitestore.Options {
	sync := syncs[m.flags.Sync]
	if m.command == "import" && sync == sqlitestore.SyncFull {
		// An import is acknowledged as a whole, when the store is closed, which
		// syncs. What a loss of power takes before that is added by the next run.
		sync = sqlitestore.SyncNormal
	}
	return sqlitestore.Options{
		Inspect:      m.readOnly(),
		Repair:       m.flags.Check.Repair,
		Collections:  storage.CollectionsOf(m.Types),
		Sync:         sync,
		Clock:        m.Now,
		Logger:       m.logger(),
		VersionCache: int(m.flags.Serve.VersionCache),
	}
}

// isEmpty reports whether a file is not there, or holds nothing.
func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// isStore reports whether a name is one of the store's file, or of those that are
// beside it while it is open.
func (m *Main) isStore(name string) bool {
	path, ok := strings.CutPrefix(m.flags.Store, "sqlite:")
	path, err := filepath.EvalSymlinks(path)
	return ok && err == nil && slices.ContainsFunc([]string{"", "-wal", "-shm", ".lock"}, func(suffix string) bool {
		return filepath.Clean(name) == path+suffix || isSameFile(name, path+suffix)
	})
}

func isSameFile(name, other string) bool {
	one, err := os.Stat(name)
	if err != nil {
		return false
	}
	two, err := os.Stat(other)
	return err == nil && os.SameFile(one, two)
}

var syncs = map[string]sqlitestore.Sync{
	"full":   sqlitestore.SyncFull,
	"normal": sqlitestore.SyncNormal,
	"off":    sqlitestore.SyncOff,
}

// maxSkew is how far times may be from those of the MongoDB server's clock.
const maxSkew = 500 * time.Millisecond

// checkMongo refuses a --store that is written wrongly.
func (m *Main) checkMongo() error {
	if err := mongostore.CheckURI(m.flags.Store); driver.CodeOf(err) == driver.CodeInvalid {
		return usageError{err}
	}
	return nil
}

// openMongo opens the store in a database of MongoDB. Commands that only read do
// not make one.
func (m *Main) openMongo(ctx context.Context, uri string) (driver.Engine, error) {
	if err := m.checkMongo(); err != nil {
		return nil, err
	}
	if m.flags.Check.Repair {
		return nil, usageError{errors.New("--repair: only a store in a file can be repaired")}
	}
	store, err := mongostore.Open(ctx, uri, mongostore.Options{
		Collections: storage.CollectionsOf(m.Types),
		Clock:       m.Now,
		Logger:      m.logger(),
		MaxSkew:     maxSkew,
		Existing:    !m.makesStore(),
	})
	switch {
	case driver.CodeOf(err) == driver.CodeNotFound:
		return nil, usageError{err}
	case err != nil:
		return nil, err
	}
	return store, nil
}

// storeName is the --store that was opened as it may be shown: without what can have a
// password.
func (m *Main) storeName() string {
	if strings.HasPrefix(m.flags.Store, "sqlite:") {
		return m.flags.Store
	}
	return mongostore.Name(m.flags.Store)
}

// unknownStore is what may be shown of a --store that is of no kind: a password can
// follow on a colon, or be where an @ or options are.
func unknownStore(store string) string {
	if !strings.ContainsAny(store, ":@?") {
		return store
	}
	return store[:strings.IndexAny(store, ":/@?")] + "…"
}

// secretURI matches a URI of MongoDB, also a misspelt one, with what may be a password: before
// an @, or in options. Its groups are the scheme, and what follows the URI.
var secretURI = regexp.MustCompile(`(?i)(mongo\S*?(?::/*|//))\S*[@?]\S*?(:?(?:\s|$))`)

// withoutSecrets returns the message of an error without the secrets of a URI that was written
// where none belongs, and without what a terminal would carry out: a server may have sent it.
func withoutSecrets(err error) string {
	text := []byte{}
	for _, r := range secretURI.ReplaceAllString(err.Error(), "$1…$2") {
		if r == '\n' || r == '\t' || strconv.IsPrint(r) {
			text = utf8.AppendRune(text, r)
		} else {
			text = append(text, strings.Trim(strconv.QuoteRune(r), "'")...)
		}
	}
	return string(text)
}

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
