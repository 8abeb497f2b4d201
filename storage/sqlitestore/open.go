package sqlitestore

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/clock"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Sync says what has happened to a write when it is acknowledged.
type Sync int

const (
	// SyncFull says that it is on the disk, and survives a power cut. The default.
	SyncFull Sync = iota
	// SyncNormal says that the system has it, and it survives the end of the process;
	// a power cut can undo the last writes, but never tears one.
	SyncNormal
	// SyncOff is as SyncNormal, and a power cut can damage the file.
	SyncOff
)

// Options say how a store is opened.
type Options struct {
	// Collections are the collections with the indexes that they shall have.
	// Indexes are added and dropped until a collection named here has just
	// those; other collections in the file stay as they are.
	Collections []driver.Collection
	Sync        Sync
	// Clock is the time of day, for commit times; nil is time.Now. Elapsed
	// measures what passes, see clock.Options; nil is the system's.
	Clock   func() time.Time
	Elapsed func() time.Duration
	// Readers is how many reads run at once; 0 stands for two for each CPU,
	// and at least four.
	Readers int
	// Logger gets what no caller can be told, such as a failed checkpoint; nil
	// drops it.
	Logger *slog.Logger

	// VersionCache is how many bytes of versions that were read are kept in
	// memory, for reads of the same ones; 0 stands for 8 MiB, less for none.
	VersionCache int

	// Inspect says that the store is only read: the file, which has to be there,
	// keeps its format, so that an older program can go on with it, and the
	// collections and indexes that it has. Writes fail with CodeInvalid. Neither the file nor its directory
	// needs to be writable if the store was closed: nothing is in a log then.
	Inspect bool

	// Repair says that versions which lie in the future get times that the order of
	// commits and the identifiers of their attempts allow. CodeUnavailable: there
	// are not enough for all of them yet.
	Repair bool

	// For tests: what goes wrong after a COMMIT (nil: nothing), the size at which
	// the disk is full, in pages (0: no limit),
	// another epochSlack, bulkVersions, smallDocument, sortBytes, idleTime and softLog, and that
	// snapshots count as asked for at each row.
	afterCommit   func() error
	maxPages      int
	epochSlack    int64
	bulkVersions  int
	smallDocument int
	sortBytes     int
	idleTime      time.Duration
	softLog       int64
	restless      bool
}

// Store is an engine over one SQLite file, behind a guard (see check.Guard).
type Store struct {
	path string
	opts Options
	log  *slog.Logger
	lock *os.File
	file *os.File // the database, see lockDatabase
	here presence

	collections []*collection
	byName      map[string]*collection
	byID        map[int64]*collection

	clock       *clock.Clock
	lease       *lease
	writer      *writer
	readers     *pool
	asks        atomic.Int64 // see pool
	checkpoints *checkpointer
	bulk        bulk
	known       *versionCache
	loaded      atomic.Int64 // the instant of the last load
	frozen      bool         // nobody writes to the file while it is open, nor was anything left in a log
	closed      bool
}

// Open opens the store in a file, or makes a new one. The file is held by one
// process at a time. Errors: CodeInvalid when the file is not a store, is of a
// newer format, or an index is declared wrongly; CodeUnavailable when it is in
// use, or cannot be read or written; CodeInternal when it is damaged.
func Open(ctx context.Context, path string, opts Options) (driver.Engine, error) {
	s, err := open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	return s.guarded(), nil
}

func (s *Store) guarded() driver.Engine {
	return check.Guard(s, slices.Collect(maps.Keys(s.byName)))
}

func open(ctx context.Context, path string, opts Options) (_ *Store, err error) {
	if opts.Clock == nil {
		opts.Clock = time.Now //nolint:forbidigo // the default of the clock that is handed in
	}
	if opts.Readers <= 0 {
		opts.Readers = max(4, 2*runtime.GOMAXPROCS(0))
	}
	if opts.epochSlack == 0 {
		opts.epochSlack = epochSlack
	}
	if opts.sortBytes == 0 {
		opts.sortBytes = sortBytes
	}
	if opts.smallDocument == 0 {
		opts.smallDocument = smallDocument
	}
	if opts.bulkVersions == 0 {
		opts.bulkVersions = bulkVersions
	}
	if opts.softLog == 0 {
		opts.softLog = softLog
	}
	if opts.idleTime == 0 {
		opts.idleTime = idleTime
	}
	if opts.VersionCache == 0 {
		opts.VersionCache = versionCacheBytes
	}
	s := &Store{path: path, opts: opts, log: opts.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			if opts.Inspect && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultCantOpen && isOpen(s.path) {
				err = driver.Errorf(driver.CodeUnavailable, "the store was not closed, and what %s-wal holds can only be read where files can be made beside it; "+
					"copy both into another directory: %w", path, err)
			}
			err = wrap(err, "opening the store "+path)
			if !strings.Contains(err.Error(), filepath.Base(path)) { // by whatever way it is named
				err = driver.Errorf(driver.CodeOf(err), "%s: %w", path, err)
			}
			if e := s.Close(); e != nil {
				s.log.Error("closing a store that could not be opened", "error", e)
			}
		}
	}()
	s.known = newVersionCache(max(opts.VersionCache, 0))
	if s.path, err = realPath(path); err != nil {
		return nil, err
	}
	if s.lock, err = acquire(s.path, opts.Inspect); err != nil {
		return nil, err
	}
	if s.file, err = acquireDatabase(s.path, opts.Inspect); err != nil {
		return nil, err
	}
	s.frozen = opts.Inspect && !isOpen(s.path)
	if err := checkHeader(s.path); err != nil {
		return nil, err
	}
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	s.writer = &writer{conn: c, store: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	s.readers = newPool(opts.Readers, &s.asks)
	for range opts.Readers {
		c, err := s.connect()
		if err != nil {
			return nil, err
		}
		s.readers.add(c)
	}
	if c, err = s.connect(); err != nil {
		return nil, err
	}
	names := []string{s.path}
	if !s.frozen {
		names = append(names, s.path+"-wal")
	}
	if err := s.here.observe(s.lock, names...); err != nil {
		return nil, err
	}
	s.checkpoints = startCheckpointer(s, c)
	go s.writer.loop()
	return s, nil
}

// realPath follows symbolic links, as SQLite does: one file has one lock and one
// log, by whatever name it is opened.
func realPath(path string) (string, error) {
	switch path {
	case "":
		return "", invalidf("the path of the store is empty")
	case ":memory:":
		return "", invalidf("a store is kept in a file; name one, such as asof.db")
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return "", invalidf("%s is a symbolic link to a file that is not there", path)
	}
	return path, nil // a new file
}

// newFile is the mode of new files, which SQLite gives to those that it makes beside
// the database: what they hold is nobody else's business.
const newFile = 0o600

// acquire takes the lock that keeps a second server away from a file. It is a
// file of its own, because closing any handle of a database file would drop
// SQLite's own locks on it. A store that is only inspected, where no file can be
// made, need not have one: no server can have made it either.
func acquire(path string, inspect bool) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, invalidf("%s is a directory; name a file in it, such as %s", path, filepath.Join(path, "asof.db"))
	}
	name := path + ".lock"
	f, shared, err := openToLock(name, inspect)
	switch {
	case shared && errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, os.ErrNotExist):
		if _, missing := os.Stat(filepath.Dir(path)); missing == nil {
			return nil, driver.Errorf(driver.CodeInvalid, "no file can be made in the directory %s: %w", filepath.Dir(path), err)
		}
		return nil, driver.Errorf(driver.CodeInvalid, "there is no directory %s: %w", filepath.Dir(path), err)
	case shared && err != nil:
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot find out whether a server uses the store: %w", err)
	case err != nil:
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot write in the directory of the store: %w", err)
	}
	taken, err := lockFile(f, shared)
	if taken {
		return f, nil
	}
	_ = f.Close() // nothing was written to it
	if err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot lock %s: %w", name, err)
	}
	return nil, errUsed(path, "")
}

// openToLock opens a file that is to be locked, and makes it where there is none.
// To inspect a store, one that cannot be written is opened to read it, which is
// enough for a lock that is shared with others who do.
func openToLock(name string, inspect bool) (f *os.File, shared bool, err error) {
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, newFile)
	if inspect && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		f, err = os.Open(name)
		return f, true, err
	}
	return f, false, err
}

func errUsed(path, how string) error {
	return driver.Errorf(driver.CodeUnavailable, "%s: another process is using it%s, such as a running server; stop that one, or name another file", path, how)
}

// acquireDatabase takes the lock that keeps servers away that open the same file by
// another name. It is taken before SQLite makes a log for that name.
func acquireDatabase(path string, inspect bool) (*os.File, error) {
	f, taken, err := lockDatabase(path, inspect)
	switch {
	case err != nil:
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot lock %s: %w", path, err)
	case !taken:
		return nil, errUsed(path, " by another name (a link, or a mount of the file)")
	}
	return f, nil
}

// pageCache is what each connection may hold of the file in memory, in KiB.
const pageCache = 4 << 10

// busyTimeout is how long to wait for another program that writes to the file, or
// makes a checkpoint. Readers never wait in WAL mode.
const busyTimeout = 10 * time.Second

// connect opens a connection.
func (s *Store) connect() (*conn, error) {
	name, flags := s.path, []sqlite.OpenFlags{sqlite.OpenReadWrite, sqlite.OpenCreate}
	if s.frozen {
		absolute, err := filepath.Abs(s.path)
		if err != nil {
			return nil, err
		}
		// SQLite makes no log then, for which it would have to write in the directory.
		place := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(absolute), "/"), RawQuery: "immutable=1"}
		name, flags = place.String(), []sqlite.OpenFlags{sqlite.OpenReadOnly, sqlite.OpenURI}
	}
	c, err := sqlite.OpenConn(name, flags...)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busyTimeout)
	pragmas := []string{
		"PRAGMA synchronous = " + map[Sync]string{SyncFull: "FULL", SyncNormal: "NORMAL", SyncOff: "OFF"}[s.opts.Sync],
		"PRAGMA wal_autocheckpoint = 0",
		pragma("journal_size_limit", logBytes),
		pragma("cache_size", -pageCache),
		"PRAGMA temp_store = MEMORY",
	}
	if s.opts.maxPages > 0 {
		pragmas = append(pragmas, pragma("max_page_count", s.opts.maxPages))
	}
	for _, query := range pragmas {
		if err := sqlitex.ExecuteTransient(c, query, nil); err != nil {
			_ = c.Close() // the first error says more
			return nil, err
		}
	}
	return newConn(c, s), nil
}

// prepare makes the file what the options say, and reads what the writer keeps
// in memory.
func (s *Store) prepare(ctx context.Context) error {
	w := s.writer
	if err := w.checkFormat(); err != nil {
		return err
	}
	if !s.frozen {
		if err := w.exec("PRAGMA journal_mode = WAL"); err != nil {
			return err
		}
	}
	bring := s.bringUp
	if s.opts.Inspect {
		bring = func(context.Context) error { return s.asItIs() }
	}
	if err := bring(ctx); err != nil {
		return err
	}
	if err := w.findBulk(); err != nil {
		return err
	}
	handedOut, err := w.integer("SELECT last FROM clock")
	if err != nil {
		return err
	}
	last := driver.Instant(0)
	if s.lock != nil {
		if last, err = readLease(s.lock); err != nil {
			return err
		}
	}
	if s.opts.Repair {
		last = 0 // repair has seen to what was handed out
	}
	last = max(last, driver.Instant(handedOut))
	for _, coll := range s.collections {
		last = max(last, coll.last)
	}
	options := clock.Options{Now: s.opts.Clock, Elapsed: s.opts.Elapsed, Last: last, Logger: s.log}
	if !s.opts.Inspect { // which tells nobody at which instants it reads
		s.lease = &lease{file: s.lock, log: s.log}
		options.Cover = s.lease.extend
	}
	s.clock = clock.New(options)
	return nil
}

// bringUp makes the file a store of this format with the declared indexes.
func (s *Store) bringUp(ctx context.Context) error {
	err := s.writer.exec("BEGIN IMMEDIATE")
	if err == nil {
		err = s.writer.createSchema()
	}
	if err == nil {
		err = s.declare(ctx)
	}
	if err == nil {
		err = s.writer.upgrade(driver.InstantOf(s.opts.Clock()))
	}
	if err == nil && s.opts.Repair {
		err = s.repair()
	}
	if err == nil {
		err = s.readLoaded()
	}
	if err == nil {
		err = s.writer.exec("COMMIT")
	}
	return err // closing the connection rolls back
}

// isOpen reports whether a file is in use, or was not closed: some of what it holds
// is in a log beside it.
func isOpen(path string) bool {
	for _, log := range [...]string{path + "-wal", path + "-journal"} {
		if info, err := os.Stat(log); err == nil && info.Size() > 0 {
			return true
		}
	}
	return false
}

// noteEnd writes what is still to be written when the store is closed.
func (s *Store) noteEnd() error {
	indexes := wrap(s.writer.endBulk(), "making the indexes of a load")
	err := s.writer.exec("PRAGMA synchronous = " + closingSync[s.opts.Sync])
	if err == nil {
		// Where commits were not synced, this one syncs all that is in the log.
		_, err = s.writer.integer("UPDATE clock SET last = max(last, ?1)", int64(s.clock.Stop()))
	}
	if err == nil {
		err = s.lease.note(0) // nothing lies ahead: the table has it
	}
	return errors.Join(indexes, wrap(err, "noting the time of closing"))
}

// closingSync is how a store syncs its last transaction.
var closingSync = map[Sync]string{SyncFull: "FULL", SyncNormal: "FULL", SyncOff: "OFF"}

// Close implements driver.Engine. SQLite crashes where a connection is closed twice.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.checkpoints != nil { // opened: the writer runs
		s.writer.close()
		if !s.opts.Inspect {
			errs = append(errs, s.noteEnd())
		}
		s.checkpoints.stop()
	}
	if s.readers != nil {
		errs = append(errs, s.readers.close())
	}
	if s.writer != nil {
		// The last connection to close moves the log into the file.
		errs = append(errs, s.writer.conn.Close())
	}
	for _, f := range []*os.File{s.file, s.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
