package sqlitestore

import (
	"os"
	"sync"
	"sync/atomic"
)

// The write-ahead log is moved into the file when about softLog pages were
// added to it, beside the writer, who goes on. What it adds meanwhile it moves
// itself, between two batches: SQLite then starts the log anew as soon as no
// reader needs it, which is soon, as reads here are short. A log that is
// written over costs less to sync than one that grows. Should readers follow
// each other so closely that the log gets hardLog bytes, the checkpoint waits
// for them, and the new ones read the file; then the log is cut.
const (
	softLog = 4000
	hardLog = 64 << 20
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
	moved atomic.Bool  // the log was, but for what the writer has just added
}

func startCheckpointer(s *Store, c *conn) *checkpointer {
	p := &checkpointer{store: s, conn: c, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go p.loop()
	return p
}

// wrote says that the log has grown by the pages of so many writes.
func (p *checkpointer) wrote(writes int64) {
	if p.pages.Add(writes*pagesOfWrite) < softLog {
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
		p.pages.Store(0)
		query := "PRAGMA wal_checkpoint(PASSIVE)"
		if p.size() > hardLog {
			query = "PRAGMA wal_checkpoint(TRUNCATE)"
		}
		p.moved.Store(p.run(p.conn, query))
	}
}

// finish moves the rest of the log, if the most was. The writer calls it
// between two transactions.
func (p *checkpointer) finish(writer *conn) {
	if p.moved.Swap(false) {
		p.run(writer, "PRAGMA wal_checkpoint(PASSIVE)")
	}
}

// run reports whether a checkpoint has succeeded.
func (p *checkpointer) run(c *conn, query string) bool {
	defer p.store.readers.yield()()
	if _, err := c.integer(query); err != nil {
		p.store.log.Error("checkpoint failed; it will be tried again", "store", p.store.path, "error", err)
		return false
	}
	return true
}

// size returns the length of the log in bytes, 0 if there is none. A log that
// was started anew keeps its length until it is cut.
func (p *checkpointer) size() int64 {
	info, err := os.Stat(p.store.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

func (p *checkpointer) stop() {
	p.once.Do(func() { close(p.quit) })
	<-p.done
	if err := p.conn.Close(); err != nil {
		p.store.log.Error("closing the checkpoint connection", "error", err)
	}
}
