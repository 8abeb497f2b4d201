package sqlitestore

import (
	"sync"
	"sync/atomic"
	"time"
)

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
