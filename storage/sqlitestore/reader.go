package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"unique"
	"unsafe"

	"github.com/tidwall/gjson"
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
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
	gjson.Parse(unsafeString(c.raw(s, col))).ForEach(func(key, value gjson.Result) bool {
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
	return unique.Make(unsafeString(b)).Value() // which is a copy
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

// exec runs a statement that returns no rows.
func (c *conn) exec(query string) error {
	s, err := c.Prepare(query)
	if err != nil {
		return err
	}
	_, err = s.Step()
	return finish(s, err)
}

// prepare prepares a statement with the values of its parameters.
func (c *conn) prepare(query string, values ...any) (*sqlite.Stmt, error) {
	s, err := c.Prepare(query)
	if err != nil {
		return nil, err
	}
	for i, value := range values {
		switch value := value.(type) {
		case int64:
			s.BindInt64(i+1, value)
		case docID:
			s.BindInt64(i+1, int64(value))
		case driver.Instant:
			s.BindInt64(i+1, int64(value))
		case bool:
			s.BindBool(i+1, value)
		case string:
			s.BindText(i+1, value)
		case []byte:
			s.BindBytes(i+1, value)
		default:
			return nil, internalf("a parameter of %s is a %T", query, value)
		}
	}
	return s, nil
}

// first runs a statement whose parameters are numbers, and calls f with its first row, if there
// is one.
func (c *conn) first(query string, f func(s *sqlite.Stmt) error, parameters ...int64) error {
	s, err := c.Prepare(query)
	if err != nil {
		return err
	}
	for i, n := range parameters {
		s.BindInt64(i+1, n)
	}
	row, err := s.Step()
	if row {
		err = f(s)
	}
	return finish(s, err)
}

// integer runs a statement that returns one number at most; 0 if it returns no row.
func (c *conn) integer(query string, values ...any) (int64, error) {
	s, err := c.prepare(query, values...)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	row, err := s.Step()
	if row {
		n = s.ColumnInt64(0)
	}
	return n, finish(s, err)
}

// finish resets a statement, so that it holds no snapshot, and returns the
// first error.
func finish(s *sqlite.Stmt, err error) error {
	if e := s.Reset(); err == nil {
		err = e
	}
	return err
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

// unsafeString views bytes as a string; both must stay unchanged while it is
// in use.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// rows calls f for each row of a statement.
func (c *conn) rows(s *sqlite.Stmt, f func(s *sqlite.Stmt) error) error {
	row, err := s.Step()
	for ; row && err == nil; row, err = s.Step() {
		if err = f(s); err != nil {
			break
		}
	}
	return finish(s, err)
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
