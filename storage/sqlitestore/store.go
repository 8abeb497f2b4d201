// Package sqlitestore is the embedded storage engine: it implements
// driver.Engine on one SQLite file, in pure Go.
//
// Invariants:
//
//   - One process holds a file (an OS lock beside it, gone with the process),
//     and in it one goroutine writes. Concurrent commits share a transaction
//     and its fsync; a write is acknowledged only after that.
//   - The database decides every write: a document's row changes only where
//     its number is the expected one, in the statement that changes it.
//   - Table documents holds the current state, table versions every version.
//     Rows of versions never change, and a version was superseded at the time of
//     the next row. Reads of the current state use documents alone.
//   - Commit times strictly increase across all documents, and are greater
//     than every instant that Now returned, also after a restart or a kill
//     (file.go).
//   - Values are encoded so that bytes compare as their kinds do. Indexes,
//     filters and sorts share that encoding and so cannot disagree.
//   - A read of an index as of any instant examines at most about twice the
//     entries that it returns (entries.go).
//   - A transaction that fails changes nothing: the state that the writer keeps in
//     memory is read again from the file.
//
// The file has a format number; a newer one is refused. See schema.go.
package sqlitestore

import (
	"cmp"
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
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/clock"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Sync is how durable a write is when it is acknowledged.
type Sync int

const (
	// SyncFull is the default: the write is on the disk, and survives a power cut.
	SyncFull Sync = iota
	// SyncNormal hands the write to the operating system: it survives the end of the
	// process. A power cut can undo the last writes, but never a part of one.
	SyncNormal
	// SyncOff is like SyncNormal, but a power cut can damage the file.
	SyncOff
)

// Options configure a store.
type Options struct {
	// Collections are the collections with their indexes. Indexes are added and
	// dropped until a collection named here has exactly those; other collections
	// in the file are unchanged.
	Collections []driver.Collection
	Sync        Sync
	// Clock is the time of day, for commit times; nil is time.Now. Elapsed
	// is the monotonic clock, see clock.Options; nil is the system's.
	Clock   func() time.Time
	Elapsed func() time.Duration
	// Logger receives errors that no call can return, such as a failed checkpoint;
	// nil drops them.
	Logger *slog.Logger

	// VersionCache is the size of the cache of versions that were read, in bytes;
	// 0 is 8 MiB, a negative number is no cache.
	VersionCache int

	// Inspect opens the store for reading only. The file must exist; its
	// collections and indexes are unchanged. Writes fail with CodeInvalid. If the store was closed, its log is empty, and
	// neither the file nor its directory needs to be writable.
	Inspect bool

	// Repair gives versions that lie in the future times that the order of commits
	// and the identifiers of their attempts allow. Opening fails with CodeUnavailable
	// while there are not enough such times for all of them.
	Repair bool

	// For tests: how many reads run at once, instead of two for each CPU; an error
	// after each COMMIT; the size at which the disk is full in pages (0: no limit);
	// and other values of the constants epochSlack, copyStep, bulkVersions, smallDocument, sortBytes,
	// idleTime and softLog.
	readers       int
	afterCommit   func() error
	maxPages      int
	epochSlack    int64
	copyStep      int64
	bulkVersions  int
	smallDocument int
	sortBytes     int
	idleTime      time.Duration
	softLog       int64
}

// Store is an engine over one SQLite file, behind a guard (see check.Guard).
type Store struct {
	path string
	opts Options
	log  *slog.Logger
	lock *os.File
	file *os.File // the database, see lockDatabase
	here fileIdentity

	collections []*collection
	byName      map[string]*collection
	byID        map[int64]*collection

	clock       *clock.Clock
	lease       *lease
	writer      *writer
	readers     *pool
	checkpoints *checkpointer
	bulk        bulk
	grouped     atomic.Bool // the index of groups exists
	cached      *versionCache
	loaded      atomic.Int64 // the instant of the last load
	frozen      bool         // opened for inspection with an empty log: the file does not change while it is open
	closed      bool
}

// Open opens the store in a file, or creates one. One process at a time can
// have it open. Errors: CodeInvalid when the file is not a store, or is of
// another format; CodeUnavailable when it is in
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
	opts.readers = cmp.Or(opts.readers, max(4, 2*runtime.GOMAXPROCS(0)))
	opts.epochSlack = cmp.Or(opts.epochSlack, epochSlack)
	opts.copyStep = cmp.Or(opts.copyStep, copyStep)
	opts.sortBytes = cmp.Or(opts.sortBytes, sortBytes)
	opts.smallDocument = cmp.Or(opts.smallDocument, smallDocument)
	opts.bulkVersions = cmp.Or(opts.bulkVersions, bulkVersions)
	opts.softLog = cmp.Or(opts.softLog, softLog)
	opts.idleTime = cmp.Or(opts.idleTime, idleTime)
	opts.VersionCache = cmp.Or(opts.VersionCache, versionCacheBytes)
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
			if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultNotADB {
				err = invalidf("the file is not a database of asof, or its beginning is damaged; name another file, or restore this one from a backup: %w", err)
			}
			err = wrap(err, "opening the store "+path)
			if !strings.Contains(err.Error(), filepath.Base(path)) { // the error may name another path to the file
				err = driver.Errorf(driver.CodeOf(err), "%s: %w", path, err)
			}
			if e := s.Close(); e != nil {
				s.log.Error("closing a store that could not be opened", "error", e)
			}
		}
	}()
	s.cached = newVersionCache(max(opts.VersionCache, 0))
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
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	s.writer = newWriter(c, s)
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	s.readers = newPool(opts.readers)
	for range opts.readers {
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
	if s.lock != nil {
		names = append(names, s.lock.Name())
	}
	if !s.frozen {
		names = append(names, s.path+"-wal")
	}
	if err := s.here.observe(names...); err != nil {
		return nil, err
	}
	s.checkpoints = startCheckpointer(s, c)
	go s.writer.loop()
	return s, nil
}

// pageCache is the size of each connection's cache of pages, in KiB. A request can use three of them.
const pageCache = 2 << 10

// busyTimeout is how long to wait for another program that writes to the file or
// runs a checkpoint. Readers never wait in WAL mode.
const busyTimeout = 10 * time.Second

// connect opens a connection.
func (s *Store) connect() (*conn, error) {
	name, flags := s.path, []sqlite.OpenFlags{sqlite.OpenReadWrite, sqlite.OpenCreate}
	if s.frozen {
		absolute, err := filepath.Abs(s.path)
		if err != nil {
			return nil, err
		}
		// With immutable=1 SQLite creates no log, for which the directory would have to be writable.
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
			_ = c.Close() // the first error is the cause
			return nil, err
		}
	}
	return newConn(c, s), nil
}

// prepare makes of the file what the options require, and reads the state that the
// writer keeps in memory.
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
	begin := s.create
	if s.opts.Inspect {
		begin = func(context.Context) error { return s.readUnchanged() }
	}
	if err := begin(ctx); err != nil {
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
		last = 0 // repair has replaced the instants that were handed out
	}
	last = max(last, driver.Instant(handedOut))
	for _, coll := range s.collections {
		last = max(last, coll.last)
	}
	if last > driver.LastInstant {
		return driver.Errorf(driver.CodeInternal, "the store's clock is ahead: it says %s, which no time can be; asof check --repair gives versions times that have passed, and sets the clock back", last)
	}
	options := clock.Options{Now: s.opts.Clock, Elapsed: s.opts.Elapsed, Last: last, Logger: s.log}
	if !s.opts.Inspect { // inspecting must not write to the lock file
		s.lease = &lease{file: s.lock, log: s.log}
		options.Cover = s.lease.extend
	}
	s.clock = clock.New(options)
	return nil
}

// create makes the tables of a new file, and builds the declared indexes.
func (s *Store) create(ctx context.Context) error {
	err := s.writer.exec("BEGIN IMMEDIATE")
	if err == nil {
		err = s.writer.createSchema()
	}
	if err == nil {
		err = s.declare(ctx)
	}
	if err == nil && s.opts.Repair {
		err = s.repair(ctx)
	}
	if err == nil {
		err = s.readLoaded()
	}
	if err == nil {
		err = s.writer.exec("COMMIT")
	}
	return err // closing the connection rolls back
}

// noteEnd completes the indexes of a large load and stores the last instant that
// was handed out, before the store is closed.
func (s *Store) noteEnd() error {
	indexes := wrap(s.writer.endBulk(), "making the indexes of a load")
	err := s.writer.exec("PRAGMA synchronous = " + closingSync[s.opts.Sync])
	if err == nil {
		// With SyncNormal this transaction syncs all earlier ones in the log.
		_, err = s.writer.integer("UPDATE clock SET last = max(last, ?1)", s.clock.Stop())
	}
	if err == nil {
		err = s.lease.note(0) // the table has the last instant
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

// readUnchanged reads the collections and indexes of a file that is opened for
// inspection (see Options.Inspect), and changes nothing in it.
func (s *Store) readUnchanged() error {
	version, err := s.writer.integer("PRAGMA user_version")
	if err != nil {
		return err
	}
	if version == 0 {
		return invalidf("the file is empty, and no store yet")
	}
	if err := s.readDeclarations(); err != nil {
		return err
	}
	s.addUnknown()
	return s.readLoaded()
}

// addUnknown adds declared collections that are not in the file, so that reads of
// them find nothing instead of failing.
func (s *Store) addUnknown() {
	const free = 0 // no collection of a file has it: ids begin at 1
	for _, decl := range s.opts.Collections {
		if s.byName[decl.Name] == nil {
			s.byName[decl.Name] = newCollection(free, decl.Name)
		}
	}
}

func wrap(err error, doing string) error { return driver.Wrap(err, doing, explain) }

// uncommitted is an error of a transaction before its COMMIT: certainly nothing of
// it is in the database.
type uncommitted struct{ error }

func (u uncommitted) Unwrap() error { return u.error }

// explain returns the code of an error and what to do; and, where it is certain that nothing
// was written, why: before the COMMIT, and when the log does not take what is written, since
// the record of a commit is the last of it.
func explain(err error) driver.Error {
	e := driver.Error{Code: driver.CodeUnavailable}
	why, certain := "its disk fails", errors.As(err, new(uncommitted))
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull:
		e.Message, why, certain = "the disk is full, nothing was written; make room and try again", "its disk is full", true
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		e.Message, why = "the database cannot be written; check the permissions of the file and its directory", "its file cannot be written"
	case sqlite.ResultBusy, sqlite.ResultLocked:
		why = "another program holds its file"
	case sqlite.ResultIOErr:
		if sqlite.ErrCode(err) == sqlite.ResultIOErrWrite {
			e.Message, why, certain = "the disk, or a limit of the size of files (ulimit -f), takes no more; nothing was written", "its file cannot be written", true
		}
	case sqlite.ResultInterrupt, sqlite.ResultCantOpen, sqlite.ResultProtocol, sqlite.ResultNoMem:
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return driver.Error{Code: driver.CodeInternal, Message: "the database file is damaged; restore it from a backup"}
	case sqlite.ResultTooBig:
		return driver.Error{Code: driver.CodeInvalid, Message: "the document is too large"}
	default:
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			return driver.Error{Code: driver.CodeInternal}
		}
	}
	if certain {
		e.Refused = "the store takes no writes now: " + why
	}
	return e
}

func invalidf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

func internalf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInternal, format, args...)
}

// Loaded implements driver.Engine.
func (s *Store) Loaded(context.Context) (driver.Instant, error) {
	return driver.Instant(s.loaded.Load()), nil
}

// Ping implements driver.Engine.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.here.check(); err != nil {
		return err
	}
	c, err := s.readers.get(ctx)
	if err != nil {
		return err
	}
	defer s.readers.release(c)
	_, err = c.integer(`SELECT count(*) FROM collections`)
	return wrap(err, "reading "+s.path)
}

// Stats implements driver.Engine. Bytes is the size of the file and its log.
func (s *Store) Stats(ctx context.Context) (driver.Stats, error) {
	var stats driver.Stats
	c, err := s.readers.get(ctx)
	if err != nil {
		return stats, err
	}
	defer s.readers.release(c)
	st, err := c.Prepare(`SELECT name, live, versions FROM collections ORDER BY name`)
	if err != nil {
		return stats, wrap(err, "counting")
	}
	if err := c.rows(st, func(st *sqlite.Stmt) error {
		stats.Add(driver.CollectionStats{Name: st.ColumnText(0), Documents: st.ColumnInt64(1), Versions: st.ColumnInt64(2)})
		return nil
	}); err != nil {
		return stats, wrap(err, "counting")
	}
	stats.Writes, stats.Commits = s.writer.writes.Load(), s.writer.commits.Load()
	for _, name := range []string{s.path, s.path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			stats.Bytes += info.Size()
		}
	}
	return stats, nil
}
