package sqlitestore

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/tidwall/gjson"
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// conn is a connection that reads rows with few allocations: statements are
// prepared once, and what recurs from row to row (authors, messages, lists of
// changed names) is allocated once. One goroutine uses it at a time.
type conn struct {
	*sqlite.Conn
	store  *Store
	lists  map[string][]string
	column sliceWriter
	whole  bool  // the last document that was read was read in full
	count  int64 // of the snapshot, or of the last one; see versionCache
	asked  int64 // of pool.asks when the snapshot was taken
}

// Limits of what a connection keeps: the number of lists, after which all are dropped, and
// the bytes of one string and of the text of one list.
const (
	maxInterned      = 4096
	maxInternedBytes = 256
	maxInternedNames = 2 << 10
)

func newConn(c *sqlite.Conn, s *Store) *conn {
	return &conn{Conn: c, store: s, lists: map[string][]string{}, count: unsettled}
}

// sliceWriter is an io.Writer that keeps the slice that it is given. With
// bytes.Reader.WriteTo it gets a column's bytes without a copy.
type sliceWriter struct{ b []byte }

func (g *sliceWriter) Write(p []byte) (int, error) {
	g.b = p
	return len(p), nil
}

// raw returns the bytes of a column in SQLite's memory, valid until the statement
// is stepped or reset.
func (c *conn) raw(s *sqlite.Stmt, col int) []byte {
	c.column.b = nil
	// The writer never fails, so neither does WriteTo.
	_, _ = s.ColumnReader(col).WriteTo(&c.column)
	return c.column.b
}

// bytes returns a copy of a column, nil where it is null or empty.
func (c *conn) bytes(s *sqlite.Stmt, col int) []byte {
	n := s.ColumnLen(col)
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	s.ColumnBytes(col, b)
	return b
}

// smallDocument is the size in bytes below which copying a document whole is
// faster than finding its members.
const smallDocument = 4096

// members returns a copy of a document with at least the members that are
// named; nil: all of them.
func (c *conn) members(s *sqlite.Stmt, col int, fields []string) []byte {
	n := s.ColumnLen(col)
	c.whole = n == 0 || fields == nil || len(fields) > 0 && n < c.store.opts.smallDocument
	switch {
	case n == 0:
		return nil
	case fields != nil && len(fields) == 0:
		return []byte("{}")
	case fields == nil || n < c.store.opts.smallDocument:
		return c.bytes(s, col)
	}
	var found []string
	size := len("{}")
	gjson.Parse(rawjson.View(c.raw(s, col))).ForEach(func(key, value gjson.Result) bool {
		if slices.Contains(fields, key.Str) {
			found = append(found, key.Raw, value.Raw)
			size += len(key.Raw) + len(":,") + len(value.Raw)
		}
		return true
	})
	out := append(make([]byte, 0, size), '{')
	for i := 0; i < len(found); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, found[i]...), ':'), found[i+1]...)
	}
	return append(out, '}')
}

// interned returns a text column, without an allocation if it was seen before.
func (c *conn) interned(s *sqlite.Stmt, col int) string {
	b := c.raw(s, col)
	if len(b) > maxInternedBytes {
		return string(b)
	}
	return unique.Make(rawjson.View(b)).Value() // which is a copy
}

// changed returns the list in a column, without an allocation if it was seen
// before.
func (c *conn) changed(s *sqlite.Stmt, col int) ([]string, error) {
	b := c.raw(s, col)
	if len(b) == 0 {
		return nil, nil
	}
	if known, ok := c.lists[string(b)]; ok {
		return known, nil
	}
	list, err := decodeNames(b)
	if err != nil || len(b) > maxInternedNames {
		return list, err
	}
	if len(c.lists) >= maxInterned {
		clear(c.lists)
	}
	c.lists[string(b)] = list
	return list, nil
}

// version copies the statement's current row, with the named members of the
// document (nil: all) if data is set. The caller sets SupersededAt.
func (c *conn) version(s *sqlite.Stmt, collection string, data bool, fields []string) (*driver.Version, error) {
	changed, err := c.changed(s, colChanged)
	if err != nil {
		return nil, internalf("%s %q, version %d: %w", collection, s.ColumnText(colKey), s.ColumnInt64(colNumber), err)
	}
	v := &driver.Version{
		Collection:   collection,
		Key:          s.ColumnText(colKey),
		Number:       s.ColumnInt64(colNumber),
		RecordedAt:   driver.Instant(s.ColumnInt64(colAt)),
		SupersededAt: driver.Forever,
		Op:           driver.Op(s.ColumnInt64(colOp)),
		Deleted:      s.ColumnInt64(colDeleted) != 0,
		Author:       c.interned(s, colAuthor),
		Message:      c.interned(s, colMessage),
		Group:        c.interned(s, colGroup),
		Changed:      changed,
	}
	v.Seal = c.bytes(s, colSeal)
	if data {
		v.Data = c.members(s, colData, fields)
	}
	return v, nil
}

// pool holds the read connections. It hands out the last one returned first, because
// its cache is the warmest.
//
// An acquired connection has a snapshot with everything that was committed before. It
// keeps the snapshot until the next commit begins, since taking one is a large part
// of the cost of a small read. Only the writer changes the file, so its count
// (see versionCache) shows when that is. While a transaction is being committed, a
// new snapshot may contain it already, and an old one must not be used any more:
// a later read would see less than an earlier one.
//
// The log cannot be overwritten while snapshots need it. So a checkpoint requests
// that all of them end: idle ones end at once, the others when they are released,
// and queries, which can take long, renew theirs in between.
type pool struct {
	tokens chan struct{} // one for each free connection
	gone   chan struct{} // closed when the store closes

	mu   sync.Mutex
	free []*conn
	size int
	asks atomic.Int64 // how often the end of snapshots was requested
}

func newPool(size int) *pool {
	return &pool{tokens: make(chan struct{}, size), gone: make(chan struct{})}
}

// add gives the pool a connection.
func (p *pool) add(c *conn) {
	p.size++
	p.release(c)
}

func (p *pool) get(ctx context.Context) (*conn, error) {
	select {
	case <-p.gone:
		return nil, driver.Closed()
	default:
	}
	select {
	case <-p.tokens:
		return p.acquire()
	default:
	}
	select {
	case <-p.tokens:
		return p.acquire()
	case <-p.gone:
		return nil, driver.Closed()
	case <-ctx.Done():
		return nil, wrap(ctx.Err(), "waiting for a read connection")
	}
}

// acquire returns a free connection with a snapshot of everything committed. The
// caller has taken a token.
func (p *pool) acquire() (*conn, error) {
	c := p.pop()
	if c.isLatest() {
		return c, nil
	}
	c.endSnapshot()
	if err := c.takeSnapshot(); err != nil {
		c.endSnapshot()
		p.release(c)
		return nil, wrap(err, "beginning to read")
	}
	return c, nil
}

// isLatest reports whether the connection has a snapshot of everything committed,
// and no commit is in flight.
func (c *conn) isLatest() bool {
	return !c.AutocommitEnabled() && c.count != unsettled && c.count == c.store.cached.count.Load()
}

// takeSnapshot begins a read transaction. SQLite takes the snapshot when the first row
// is read.
func (c *conn) takeSnapshot() error {
	count := c.store.cached.current()
	c.count, c.asked = unsettled, c.store.readers.asks.Load()
	if err := c.exec("BEGIN"); err != nil || count == unsettled {
		return err
	}
	if _, err := c.integer("SELECT last FROM clock"); err != nil {
		return err
	}
	if c.store.cached.count.Load() == count {
		c.count = count
	}
	return nil
}

// endSnapshot ends a connection's snapshot. It resets statements that a panic has left
// unfinished, which would keep the snapshot.
func (c *conn) endSnapshot() {
	if c.AutocommitEnabled() {
		return
	}
	c.SetInterrupt(nil) // resets those that stand on a row
	if err := c.exec("COMMIT"); err != nil {
		_ = c.exec("ROLLBACK") // if it fails, so will the next BEGIN, which is reported
	}
}

// ask requests that all snapshots end.
func (p *pool) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks.Add(1)
	for _, c := range p.free {
		c.endSnapshot()
	}
}

// isAsked reports whether the end of the connection's snapshot was requested.
func (c *conn) isAsked() bool { return c.asked != c.store.readers.asks.Load() }

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	c := p.free[last]
	p.free = p.free[:last]
	return c
}

// release returns a connection to the pool.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	if c.isAsked() || !c.isLatest() {
		c.endSnapshot()
	}
	p.free = append(p.free, c)
	p.mu.Unlock()
	p.tokens <- struct{}{}
}

// close waits until every connection was released and closes them.
func (p *pool) close() error {
	var errs []error
	close(p.gone)
	for range p.size {
		<-p.tokens
		c := p.pop()
		c.endSnapshot()
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// read calls f with a connection that sees one snapshot. After a large load it first has
// the indexes of versions made.
func (s *Store) read(ctx context.Context, f func(c *conn) error) error {
	if s.bulk.Load() {
		if err := s.writer.submit(&request{ctx: ctx, run: s.writer.endBulk}); err != nil {
			return err
		}
	}
	c, err := s.readers.get(ctx)
	if err != nil {
		return err
	}
	if s.bulk.Load() { // a large load has begun meanwhile
		s.readers.release(c)
		return s.read(ctx, f)
	}
	defer s.readers.release(c)
	return f(c)
}

// The write-ahead log is copied into the file after about softLog pages were added
// to it, by another goroutine, while the writer continues. The writer copies the
// pages that it added meanwhile between two transactions: SQLite then overwrites the
// log as soon as no snapshot needs it. Overwriting costs less to sync than growing.
//
// A checkpoint does not wait for readers: it requests their snapshots, and long
// queries renew theirs within a row (see pool). Only if the log has still grown to
// four times softLog, because there is always a reader, the writer waits for readers
// up to logWait, so that the log can restart under any load. It does so only while
// each checkpoint copies more of the log: not while another program reads the
// file for a long time.
const (
	softLog  = 4000
	pageSize = 4096 // SQLite's default
	logWait  = 50 * time.Millisecond
	// logBytes is the size to which the log's file is truncated when the log restarts.
	logBytes = 64 << 20
)

type checkpointer struct {
	store *Store
	conn  *conn
	wake  chan struct{}
	quit  chan struct{}
	done  chan struct{}
	pages atomic.Int64 // estimate of those written since the last checkpoint

	mu    sync.Mutex  // held by a checkpoint
	most  atomic.Bool // the log was copied, but for pages that were added meanwhile
	moved int64       // pages that were copied of a log that could not restart
}

func startCheckpointer(s *Store, c *conn) *checkpointer {
	p := &checkpointer{store: s, conn: c, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	if info, err := os.Stat(s.path + "-wal"); err == nil && !s.opts.Inspect { // of a process that was killed
		p.wrote(info.Size() / pageSize)
	}
	go p.loop()
	return p
}

// wrote adds pages to the estimate of the log's size. Each row that is changed takes about one, beside
// those of a long document: some change those of indexes as well, and some lie together.
func (p *checkpointer) wrote(pages int64) {
	if p.pages.Add(pages) < p.store.opts.softLog {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *checkpointer) loop() {
	defer close(p.done)
	for {
		select {
		case <-p.quit:
			return
		case <-p.wake:
		}
		p.mu.Lock()
		p.pages.Store(0)
		p.run(p.conn, "PASSIVE")
		p.most.Store(true)
		p.mu.Unlock()
	}
}

// finish copies the rest of the log after a checkpoint. The writer calls it between
// two transactions.
func (p *checkpointer) finish(writer *conn) {
	if !p.most.Swap(false) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pages, moved := p.run(writer, "PASSIVE")
	if pages < 4*p.store.opts.softLog {
		p.moved = 0
		return
	}
	if moved <= p.moved {
		return
	}
	writer.SetBusyTimeout(logWait)
	defer writer.SetBusyTimeout(busyTimeout)
	// A snapshot that is taken after all pages were copied does not need the log.
	if pages, p.moved = p.run(writer, "FULL"); pages == p.moved {
		p.run(writer, "RESTART")
	}
}

// run runs a checkpoint. It returns the number of pages in the log, and how many of
// them are in the file.
func (p *checkpointer) run(c *conn, mode string) (pages, moved int64) {
	p.store.readers.ask()
	s, err := c.Prepare("PRAGMA wal_checkpoint(" + mode + ")")
	if err == nil {
		_, err = s.Step()
		pages, moved = s.ColumnInt64(1), s.ColumnInt64(2)
		err = finish(s, err)
	}
	if err != nil {
		p.store.log.Error("checkpoint failed; it will be tried again", "store", p.store.path, "error", err)
	}
	return pages, moved
}

func (p *checkpointer) stop() {
	close(p.quit)
	<-p.done
	if err := p.conn.Close(); err != nil {
		p.store.log.Error("closing the checkpoint connection", "error", err)
	}
}
