package sqlitestore

import (
	"context"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// writer owns the one connection that writes. Its goroutine commits all queued
// requests in one transaction, with one fsync; meanwhile the next batch is queued.
// Only this goroutine uses the other fields, and the counters of collections and indexes.
type writer struct {
	*conn
	store *Store

	queue  chan *request
	ending chan struct{} // closed when the store closes
	done   chan struct{} // closed when the goroutine has ended

	cache   stateCache
	pending pending         // index changes of the running transaction
	added   []loadedVersion // by Load, see flushAdded
	values  valueBuffer
	changes int64 // rows that were changed up to the last commit
	written int64 // bytes of documents that were written since
	first   int   // the index that is flushed first
	copies  int64 // how much the transaction may still copy of entries that continue, by sizeOf
	// For Stats.
	writes, commits atomic.Int64

	bulkFailed error     // the last try to make the indexes of a load; nil: none failed
	bulkTried  time.Time // the time of bulkFailed
	grouping   bool      // the index of groups is to be made

	stale bool // the counters could not be read again after a failed write
}

func newWriter(c *conn, s *Store) *writer {
	return &writer{conn: c, store: s, queue: make(chan *request, maxBatch), ending: make(chan struct{}), done: make(chan struct{})}
}

// request is one call of Commit, of Rewrite, or of another method that writes (run).
type request struct {
	ctx     context.Context
	writes  []driver.Write
	rewrite func() error // within a transaction
	run     func() error

	claimed  atomic.Bool   // by the writer, or by a caller whose context ended
	ready    chan struct{} // closed when versions and err are final
	versions []*driver.Version
	err      error
}

// maxBatch bounds how many writes share one transaction, and so how long the
// first of them waits.
const maxBatch = 1024

// submit queues a request and waits for its outcome. If the caller's context ends
// before the writer has begun, the request is left out; later than that, submit waits
// for the outcome.
func (w *writer) submit(r *request) error {
	r.ready = make(chan struct{})
	select {
	case w.queue <- r:
	case <-r.ctx.Done():
		return driver.GivenUp(r.ctx.Err())
	case <-w.done:
		return driver.Closed()
	}
	var unclaimed error
	select {
	case <-r.ready:
		return r.err
	case <-r.ctx.Done():
		unclaimed = driver.GivenUp(r.ctx.Err())
	case <-w.done:
		unclaimed = driver.Closed()
	}
	if r.claimed.CompareAndSwap(false, true) {
		return unclaimed
	}
	<-r.ready
	return r.err
}

// loop is the writer's goroutine.
func (w *writer) loop() {
	defer close(w.done)
	for r := w.wait(); r != nil; {
		if r = w.take(r); r == nil {
			r = w.wait()
		}
	}
}

// queued returns the next request; nil where there is none yet.
func (w *writer) queued() *request {
	select {
	case r := <-w.queue:
		return r
	default:
		return nil
	}
}

// idleTime is how long the writer is idle before it completes indexes and cuts epochs.
const idleTime = 2 * time.Second

// wait returns the next request; nil when the store closes and all are done. Meanwhile it
// completes the indexes of a large load, cuts epochs, and then makes the index of groups.
func (w *writer) wait() *request {
	idle := time.NewTimer(w.store.opts.idleTime)
	defer idle.Stop()
	if _, ix, _ := w.oversized(); w.store.opts.Inspect || ix == nil && !w.store.bulk.Load() && !w.grouping {
		idle.Stop()
	}
	for {
		select {
		case r := <-w.queue:
			return r
		case <-w.ending:
			return w.queued()
		case <-idle.C:
		}
		switch err := w.endBulk(); {
		case err != nil:
			w.store.log.Error("making the indexes of a load failed; it will be tried again when they are needed", "store", w.store.path, "error", err)
		case w.cutOversized():
			select { // first
			case r := <-w.queue:
				return r
			case <-w.ending:
				return w.queued()
			default:
				idle.Reset(0)
			}
		default:
			w.indexGroups()
		}
	}
}

// take handles a request together with those of its kind that are queued behind it. It returns
// the first of another kind, nil if there is none.
func (w *writer) take(r *request) *request {
	var batch []*request
	for writes := 0; r != nil && writes < maxBatch; r = w.queued() {
		if len(batch) > 0 && (r.run != nil || (r.rewrite != nil) != (batch[0].rewrite != nil)) {
			break
		}
		switch {
		case !r.claimed.CompareAndSwap(false, true):
		case r.ctx.Err() != nil:
			r.finish(driver.GivenUp(r.ctx.Err()))
		case r.run != nil:
			r.finish(r.run())
			w.store.checkpoints.finish(w.conn)
			return nil
		default:
			batch, writes = append(batch, r), writes+max(1, len(r.writes))
		}
	}
	if len(batch) > 0 {
		w.handle(batch)
		w.store.checkpoints.finish(w.conn)
	}
	return r
}

func (r *request) finish(err error) {
	r.err = err
	close(r.ready)
}

// transaction runs f in one transaction. When it fails nothing was written, unless
// the COMMIT itself failed, and the state in memory is read again from the file.
func (w *writer) transaction(f func() error) error {
	w.cache.trim()
	if err := w.store.here.check(); err != nil {
		return err
	}
	if w.stale {
		if err := w.restore(); err != nil {
			return uncommitted{err}
		}
	}
	committing := false // COMMIT was sent
	err := w.exec("BEGIN IMMEDIATE")
	if err == nil {
		err = f()
		changed := w.pending.touched
		if err == nil {
			err = w.flush()
		}
		if err == nil {
			w.store.cached.committing()
			committing = true
			err = w.commitNow()
			w.store.cached.committed(changed, err == nil)
		}
	}
	if err == nil {
		w.countChanges()
		return nil
	}
	w.pending.reset()
	w.cache.clear()
	w.added = nil
	w.stale = true
	if e := w.restore(); e != nil {
		w.store.log.Error("rolling back a failed write; it will be tried again before the next one", "error", e)
	}
	if !committing {
		return uncommitted{err}
	}
	return err
}

// countChanges tells the checkpointer how much the last transaction has written.
func (w *writer) countChanges() {
	all, err := w.integer("SELECT total_changes()")
	if err != nil { // it reads nothing of the file
		w.store.log.Error("counting changes", "error", err)
	}
	w.store.checkpoints.wrote(all - w.changes + w.written/pageSize)
	w.changes, w.written = all, 0
}

func (w *writer) commitNow() error {
	err := w.exec("COMMIT")
	if err == nil && w.store.opts.afterCommit != nil {
		err = w.store.opts.afterCommit()
	}
	return err
}

// restore rolls back and reads the state in memory again from the file. After a
// failure nothing is written until it has succeeded.
func (w *writer) restore() error {
	if !w.AutocommitEnabled() {
		if err := w.exec("ROLLBACK"); err != nil {
			return err
		}
	}
	if err := w.store.reload(w.conn); err != nil {
		return err
	}
	// A COMMIT that failed may have happened.
	if err := w.store.readLoaded(); err != nil {
		return err
	}
	w.stale = false
	return nil
}

// flush writes the index entries and counters of the transaction.
func (w *writer) flush() error {
	if err := w.flushEntries(); err != nil {
		return err
	}
	for _, coll := range w.store.collections {
		if !coll.dirty {
			continue
		}
		if _, err := w.integer(`UPDATE collections SET sequence = ?2, live = ?3, versions = ?4, last = ?5 WHERE id = ?1`, coll.id, coll.sequence, coll.live, coll.versions, coll.last); err != nil {
			return err
		}
		coll.dirty = false
	}
	return nil
}

// close waits until all accepted requests are done.
func (w *writer) close() {
	close(w.ending)
	<-w.done
}

// exec runs a statement that returns no rows.
func (c *conn) exec(query string) error {
	_, err := c.integer(query)
	return err
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
