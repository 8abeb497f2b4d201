package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tidwall/gjson"
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// conn is a connection with what makes reading rows cheap: statements are
// prepared once, and strings that recur from row to row (authors, messages,
// lists of changed names) are made once. One goroutine uses it at a time.
type conn struct {
	*sqlite.Conn
	strings map[string]string
	lists   map[string][]string
	grab    grabber
	bulk    *bulk
	small   int  // see smallDocument
	whole   bool // the last document that was read was read in full

	known *versionCache
	count int64 // of the snapshot, or of the last one; see versionCache

	asks  *atomic.Int64 // see pool
	asked int64         // when the snapshot was taken

	restless bool // for tests
	inspect  bool // see Options.Inspect
}

// The most strings that a connection remembers, then it starts afresh; and how
// long they, and the texts of lists, are at most.
const (
	maxInterned      = 4096
	maxInternedBytes = 256
	maxInternedNames = 2 << 10
)

func newConn(c *sqlite.Conn, s *Store) *conn {
	return &conn{
		Conn: c, strings: map[string]string{}, lists: map[string][]string{}, bulk: &s.bulk, small: s.opts.smallDocument, restless: s.opts.restless,
		known: s.known, count: unsettled, asks: &s.asks, inspect: s.opts.Inspect,
	}
}

// grabber is an io.Writer that keeps the slice it is given. Through
// bytes.Reader.WriteTo it yields a column's bytes without a copy.
type grabber struct{ b []byte }

func (g *grabber) Write(p []byte) (int, error) {
	g.b = p
	return len(p), nil
}

// raw returns the bytes of a column in SQLite's memory, good until the
// statement moves.
func (c *conn) raw(s *sqlite.Stmt, col int) []byte {
	c.grab.b = nil
	// The writer never fails, so neither does WriteTo.
	_, _ = s.ColumnReader(col).WriteTo(&c.grab)
	return c.grab.b
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

// smallDocument is how many bytes are copied sooner than looked through.
const smallDocument = 4096

// members returns a copy of a document with at least the members that are
// named; nil: all of them.
func (c *conn) members(s *sqlite.Stmt, col int, fields []string) []byte {
	n := s.ColumnLen(col)
	c.whole = n == 0 || fields == nil || len(fields) > 0 && n < c.small
	switch {
	case n == 0:
		return nil
	case fields != nil && len(fields) == 0:
		return []byte("{}")
	case fields == nil || n < c.small:
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
	if len(b) == 0 {
		return ""
	}
	if len(b) > maxInternedBytes {
		return string(b)
	}
	if known, ok := c.strings[string(b)]; ok {
		return known
	}
	if len(c.strings) >= maxInterned {
		clear(c.strings)
	}
	text := string(b)
	c.strings[text] = text
	return text
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

// version copies the row that a statement stands on, with the members of the
// document that are named (nil: all) if data is set. The caller sets
// SupersededAt.
func (c *conn) version(s *sqlite.Stmt, collection string, data bool, fields []string) (*driver.Version, error) {
	changed, err := c.changed(s, colChanged)
	if err != nil {
		return nil, err
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
	if data {
		v.Data = c.members(s, colData, fields)
	}
	return v, nil
}

// next returns the column colNext of a version's row as an instant.
func next(s *sqlite.Stmt) driver.Instant {
	if at := s.ColumnInt64(colNext); at != 0 || !s.ColumnIsNull(colNext) {
		return driver.Instant(at)
	}
	return driver.Forever
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

// integer runs a statement that returns one number; none is 0.
func (c *conn) integer(query string, args ...int64) (int64, error) {
	s, err := c.Prepare(query)
	if err != nil {
		return 0, err
	}
	for i, a := range args {
		s.BindInt64(i+1, a)
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

// pool lends read connections, the last one returned first, whose cache is
// the warmest.
//
// A connection that it lends sees one snapshot, which holds everything that was
// committed before. It keeps the snapshot until something new is about to be
// committed: taking one is a good part of what a small read costs. Nobody else
// writes to the file, so the writer's count (see versionCache) says when that is.
// While a transaction is being committed, a new snapshot may hold it already, so
// that an old one must not be read from any more: who read later would see less.
//
// A snapshot keeps the log from being written over. So a checkpoint asks for all of
// them: those that nobody uses end at once, the others when they are given back, and
// queries, which can take long, take another one in between.
type pool struct {
	tokens chan struct{} // one for each connection that is free
	gone   chan struct{} // closed when the store closes

	mu   sync.Mutex
	free []*conn
	size int
	asks *atomic.Int64 // how often snapshots were asked for
}

func newPool(size int, asks *atomic.Int64) *pool {
	return &pool{tokens: make(chan struct{}, size), gone: make(chan struct{}), asks: asks}
}

// add gives the pool a connection.
func (p *pool) add(c *conn) {
	p.size++
	p.put(c)
}

func (p *pool) get(ctx context.Context) (*conn, error) {
	select {
	case <-p.gone:
		return nil, driver.Closed()
	default:
	}
	select {
	case <-p.tokens:
		return p.lend()
	default:
	}
	select {
	case <-p.tokens:
		return p.lend()
	case <-p.gone:
		return nil, driver.Closed()
	case <-ctx.Done():
		return nil, wrap(ctx.Err(), "waiting for a read connection")
	}
}

// lend returns the connection of a token, with a snapshot of what is committed.
func (p *pool) lend() (*conn, error) {
	c := p.pop()
	if c.isLatest() {
		return c, nil
	}
	c.letGo()
	if err := c.takeSnapshot(); err != nil {
		c.letGo()
		p.put(c)
		return nil, wrap(err, "beginning to read")
	}
	return c, nil
}

// isLatest reports whether the connection has a snapshot of all that is committed,
// and nothing is being committed.
func (c *conn) isLatest() bool {
	return !c.AutocommitEnabled() && c.count != unsettled && c.count == c.known.count.Load()
}

// takeSnapshot begins to read. SQLite takes the snapshot with the first row that
// is read.
func (c *conn) takeSnapshot() error {
	count := c.known.current()
	c.count, c.asked = unsettled, c.asks.Load()
	if err := c.exec("BEGIN"); err != nil || count == unsettled {
		return err
	}
	if _, err := c.integer("SELECT last FROM clock"); err != nil {
		return err
	}
	if c.known.count.Load() == count {
		c.count = count
	}
	return nil
}

// letGo ends a connection's snapshot. A statement that a panic left in the middle
// would hold on to it, also for those who take the next one.
func (c *conn) letGo() {
	if c.AutocommitEnabled() {
		return
	}
	c.SetInterrupt(nil) // resets those that stand on a row
	if err := c.exec("COMMIT"); err != nil {
		_ = c.exec("ROLLBACK") // if it fails, so will the next BEGIN, which is reported
	}
}

// ask asks for the snapshots that there are.
func (p *pool) ask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks.Add(1)
	for _, c := range p.free {
		c.letGo()
	}
}

// isAsked reports whether the connection's snapshot was asked for.
func (c *conn) isAsked() bool { return c.asked != c.asks.Load() }

func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	c := p.free[last]
	p.free = p.free[:last]
	return c
}

// put takes a connection back.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	if c.isAsked() || !c.isLatest() {
		c.letGo()
	}
	p.free = append(p.free, c)
	p.mu.Unlock()
	p.tokens <- struct{}{}
}

// close waits until every connection is back and closes them.
func (p *pool) close() error {
	var errs []error
	close(p.gone)
	for range p.size {
		<-p.tokens
		c := p.pop()
		c.letGo()
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
