package sqlitestore

import (
	"context"
	"sync"
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
	// For Stats.
	writes, commits atomic.Int64

	bulkFailed error     // the last try to make the indexes of a load; nil: none failed
	bulkTried  time.Time // the time of bulkFailed

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
// completes the indexes of a large load and cuts epochs.
func (w *writer) wait() *request {
	idle := time.NewTimer(w.store.opts.idleTime)
	defer idle.Stop()
	if _, ix, _ := w.oversized(); w.store.opts.Inspect || ix == nil && !w.store.bulk.Load() {
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
		if err := w.endBulk(); err != nil {
			w.store.log.Error("making the indexes of a load failed; it will be tried again when they are needed", "store", w.store.path, "error", err)
		} else if w.cutOversized() {
			select { // first
			case r := <-w.queue:
				return r
			case <-w.ending:
				return w.queued()
			default:
				idle.Reset(0)
			}
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
	w.store.checkpoints.wrote(all - w.changes)
	w.changes = all
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

// bindVersion binds the columns that documents and versions have in common.
func (w *writer) bindVersion(s *sqlite.Stmt, v *driver.Version, seal []byte) {
	s.BindInt64(3, int64(v.RecordedAt))
	s.BindInt64(4, int64(v.Op))
	s.BindBool(5, v.Deleted)
	s.BindText(6, v.Author)
	s.BindText(7, v.Message)
	s.BindText(8, v.Group)
	s.BindText(9, encodeNames(v.Changed))
	s.BindBytes(14, seal)
	if v.Deleted {
		s.BindNull(12)
	} else {
		s.BindBytes(12, v.Data)
	}
}

// close waits until all accepted requests are done.
func (w *writer) close() {
	close(w.ending)
	<-w.done
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
	softLog = 4000
	logWait = 50 * time.Millisecond
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
	go p.loop()
	return p
}

// wrote adds rows that were changed to the estimate of the log's size. Each takes about one
// page: some change those of indexes as well, and some lie together.
func (p *checkpointer) wrote(rows int64) {
	if p.pages.Add(rows) < p.store.opts.softLog {
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
