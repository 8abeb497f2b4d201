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
//
// A large load writes so much that the log is never moved as a whole while the
// writer goes on. So when it has bulkLog pages the writer waits for the checkpoint
// that runs, and moves the rest, before it begins the next transaction. The log
// is written over from then on: cutting it would cost the writer a longer wait,
// and the system the pages that it has for it.
const (
	softLog  = 4000
	hardLog  = 64 << 20
	bulkLog  = 12_000
	bulkHard = 4 * hardLog
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

	running sync.Mutex   // held by a checkpoint beside the writer
	frames  atomic.Int64 // in the log, at the last checkpoint beside the writer
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
		p.beside()
	}
}

// beside is a checkpoint while the writer goes on.
func (p *checkpointer) beside() {
	p.running.Lock()
	defer p.running.Unlock()
	p.pages.Store(0)
	most := int64(hardLog)
	if p.store.bulk.Load() {
		most = bulkHard
	}
	query := "PRAGMA wal_checkpoint(PASSIVE)"
	if p.size() > most {
		query = "PRAGMA wal_checkpoint(TRUNCATE)"
	}
	frames, ok := p.run(p.conn, query)
	p.frames.Store(frames)
	p.moved.Store(ok)
}

// settle moves a log that has become long as a whole, so that the next transaction
// begins it anew. The writer calls it between two transactions of a large load.
func (p *checkpointer) settle(writer *conn) {
	if p.frames.Load() < bulkLog {
		return
	}
	p.running.Lock()
	defer p.running.Unlock()
	p.frames.Store(0)
	p.run(writer, "PRAGMA wal_checkpoint(PASSIVE)")
}

// finish moves the rest of the log, if the most was. The writer calls it
// between two transactions.
func (p *checkpointer) finish(writer *conn) {
	if p.moved.Swap(false) {
		p.run(writer, "PRAGMA wal_checkpoint(PASSIVE)")
	}
}

// run makes a checkpoint. It returns how many frames the log has, and whether
// that succeeded.
func (p *checkpointer) run(c *conn, query string) (frames int64, ok bool) {
	defer p.store.readers.yield()()
	s, err := c.Prepare(query)
	if err == nil {
		_, err = s.Step()
		frames = s.ColumnInt64(1) // after the one that says whether it was kept from its work
		err = finish(s, err)
	}
	if err != nil {
		p.store.log.Error("checkpoint failed; it will be tried again", "store", p.store.path, "error", err)
		return 0, false
	}
	return frames, true
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
