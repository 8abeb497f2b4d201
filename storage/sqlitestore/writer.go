package sqlitestore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// writer owns the one connection that writes. Its goroutine takes whatever
// is queued and commits it in one transaction, with one fsync: while that
// runs, the next batch gathers. Only this goroutine touches the fields below
// the queue, and the counters of collections and indexes.
type writer struct {
	entries int64 // of indexes, that were written for a batch
	*conn
	store *Store

	mu     sync.Mutex
	queue  []*request
	closed bool
	wake   chan struct{} // has room for one
	done   chan struct{} // closed when the goroutine has ended

	cache   stateCache
	pending pending // index changes of the running transaction
	values  valueBuffer
	// What Stats tells.
	writes, commits atomic.Int64

	bulkFailed error     // the last try to make the indexes of a load; nil: none failed
	bulkTried  time.Time // when that was

	stale bool // the counters could not be read again after a failed write
}

// request is one call of Commit, or of another method that writes (run).
type request struct {
	ctx    context.Context
	writes []driver.Write
	run    func() error

	claimed  atomic.Bool   // by the writer, or by a caller that gives up
	ready    chan struct{} // closed when versions and err are final
	versions []*driver.Version
	err      error
}

// maxBatch bounds how many writes share one transaction, and so how long the
// first of them waits.
const maxBatch = 1024

// submit queues a request and waits for its outcome. A caller whose context
// ends leaves the queue if the writer has not begun; else it learns the
// outcome.
func (w *writer) submit(r *request) error {
	r.ready = make(chan struct{})
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return driver.Closed()
	}
	w.queue = append(w.queue, r)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case <-r.ready:
		return r.err
	case <-r.ctx.Done():
		if r.claimed.CompareAndSwap(false, true) {
			return driver.GivenUp(r.ctx.Err())
		}
		<-r.ready
		return r.err
	}
}

// loop is the writer's goroutine.
func (w *writer) loop() {
	defer close(w.done)
	for {
		w.mu.Lock()
		queue, closed := w.queue, w.closed
		w.queue = nil
		w.mu.Unlock()
		if len(queue) == 0 {
			if closed {
				return
			}
			w.wait()
			continue
		}
		for len(queue) > 0 {
			n := w.take(queue)
			queue = queue[n:]
		}
	}
}

// idleTime is how long the writer has nothing to do before it tidies up.
const idleTime = 2 * time.Second

// wait returns when something was queued. Meanwhile it tidies up.
func (w *writer) wait() {
	if ix, _ := w.oversized(); w.store.opts.Inspect || ix == nil && !w.store.bulk.Load() {
		<-w.wake
		return
	}
	idle := time.NewTimer(w.store.opts.idleTime)
	defer idle.Stop()
	select {
	case <-w.wake:
		return
	case <-idle.C:
	}
	if err := w.endBulk(); err != nil {
		w.store.log.Error("making the indexes of a load failed; it will be tried again when they are needed", "store", w.store.path, "error", err)
	}
	for w.tidy() {
		select {
		case <-w.wake:
			return
		default:
		}
	}
	<-w.wake
}

// take handles the first requests of the queue together and returns how many.
func (w *writer) take(queue []*request) int {
	n, writes := 0, 0
	var batch []*request
	for n < len(queue) && writes < maxBatch {
		r := queue[n]
		if r.run != nil && len(batch) > 0 {
			break
		}
		n++
		switch {
		case !r.claimed.CompareAndSwap(false, true):
		case r.ctx.Err() != nil:
			r.finish(driver.GivenUp(r.ctx.Err()))
		case r.run != nil:
			r.finish(r.run())
			w.store.checkpoints.finish(w.conn)
			return n
		default:
			batch, writes = append(batch, r), writes+len(r.writes)
		}
	}
	if len(batch) > 0 {
		w.entries = 0
		w.commitBatch(batch)
		// A document may have thousands of entries, each on a page of its own.
		w.store.checkpoints.wrote(int64(writes) + w.entries/pagesOfWrite)
		w.store.checkpoints.finish(w.conn)
	}
	return n
}

func (r *request) finish(err error) {
	r.err = err
	close(r.ready)
}

// transaction runs f in one transaction. When it fails nothing has happened, but
// for a COMMIT that failed, and what the writer remembers is what the file says.
func (w *writer) transaction(f func() error) error {
	w.cache.trim()
	if err := w.store.here.recently(w.store.opts.Clock()); err != nil {
		return err
	}
	if w.stale {
		if err := w.restore(); err != nil {
			return uncommitted{err}
		}
	}
	committing := false // to commit
	err := w.exec("BEGIN IMMEDIATE")
	if err == nil {
		err = f()
		changed := w.pending.touched
		if err == nil {
			err = w.flush()
		}
		if err == nil {
			w.store.known.committing()
			committing = true
			err = w.commitNow()
			w.store.known.committed(changed, err == nil)
		}
	}
	if err == nil {
		return nil
	}
	w.pending.reset()
	w.cache.clear()
	w.stale = true
	if e := w.restore(); e != nil {
		w.store.log.Error("rolling back a failed write; it will be tried again before the next one", "error", e)
	}
	if !committing {
		return uncommitted{err}
	}
	return err
}

func (w *writer) commitNow() error {
	err := w.exec("COMMIT")
	if err == nil && w.store.opts.afterCommit != nil {
		err = w.store.opts.afterCommit()
	}
	return err
}

// restore makes what the writer remembers what the file says. Until it has
// succeeded after a failure, nothing is written.
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

// flush writes what the transaction gathered: index entries and counters.
func (w *writer) flush() error {
	if err := w.flushEntries(); err != nil {
		return err
	}
	for _, coll := range w.store.collections {
		if !coll.dirty {
			continue
		}
		s, err := w.Prepare(`UPDATE collections SET sequence = ?2, live = ?3, versions = ?4, last = ?5 WHERE id = ?1`)
		if err != nil {
			return err
		}
		s.BindInt64(1, coll.id)
		s.BindInt64(2, coll.sequence)
		s.BindInt64(3, coll.live)
		s.BindInt64(4, coll.versions)
		s.BindInt64(5, int64(coll.last))
		_, err = s.Step()
		if err := finish(s, err); err != nil {
			return err
		}
		coll.dirty = false
	}
	return nil
}

// bindVersion binds what rows of documents and versions have in common.
func (w *writer) bindVersion(s *sqlite.Stmt, v *driver.Version) error {
	names, err := encodeNames(v.Changed)
	if err != nil {
		return err
	}
	s.BindInt64(3, int64(v.RecordedAt))
	s.BindInt64(4, int64(v.Op))
	s.BindBool(5, v.Deleted)
	s.BindText(6, v.Author)
	s.BindText(7, v.Message)
	s.BindText(8, v.Group)
	s.BindText(9, names)
	if v.Deleted {
		s.BindNull(12)
	} else {
		s.BindBytes(12, v.Data)
	}
	return nil
}

// close waits until everything that was accepted is done.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	<-w.done
}

// The write-ahead log is moved into the file when about softLog pages were
// added to it, beside the writer, who goes on. What it adds meanwhile it moves
// itself, between two transactions: SQLite then starts the log anew as soon as
// nobody reads from it. A log that is written over costs less to sync than one that
// grows.
//
// Nobody waits for readers: their snapshots are asked for, and those of queries that
// take long are renewed within a row (see pool). Only where a log has grown to four
// times softLog all the same, since somebody always reads, the writer waits for them,
// for logWait, so that it can be started anew under any load. It does so only while
// more and more of the log can be moved: not beside another program that reads the
// file for long.
const (
	softLog = 4000
	logWait = 50 * time.Millisecond
	// logBytes is what the log's file is cut to when it is started anew.
	logBytes = 64 << 20
	// pagesOfWrite is about how many pages one write changes: rows of three
	// tables and of their indexes, some of which share a page with those of
	// other writes.
	pagesOfWrite = 5
)

type checkpointer struct {
	store *Store
	conn  *conn
	wake  chan struct{}
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once
	pages atomic.Int64 // written since the last checkpoint, roughly

	mu    sync.Mutex  // held by a checkpoint
	most  atomic.Bool // of the log was moved, but for what the writer has just added
	moved int64       // pages of a log that could not be started anew
}

func startCheckpointer(s *Store, c *conn) *checkpointer {
	p := &checkpointer{store: s, conn: c, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go p.loop()
	return p
}

// wrote says that the log has grown by the pages of so many writes.
func (p *checkpointer) wrote(writes int64) {
	if p.pages.Add(writes*pagesOfWrite) < p.store.opts.softLog {
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

// finish moves the rest of the log, if the most was. The writer calls it between two
// transactions.
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
	// Who takes a snapshot after all is moved reads the file, and not the log.
	if pages, p.moved = p.run(writer, "FULL"); pages == p.moved {
		p.run(writer, "RESTART")
	}
}

// run makes a checkpoint. It returns how many pages the log has, and how many of them
// are in the file.
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
	p.once.Do(func() { close(p.quit) })
	<-p.done
	if err := p.conn.Close(); err != nil {
		p.store.log.Error("closing the checkpoint connection", "error", err)
	}
}
