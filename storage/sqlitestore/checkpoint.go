package sqlitestore

import (
	"os"
	"sync"
	"sync/atomic"
)

// The write-ahead log is moved into the file when about softLog pages were
// added to it, beside the writer, who goes on. SQLite then starts the log anew
// as soon as no reader needs it, which is soon: reads here are short. Should
// readers follow each other so closely that this never happens until the log
// has hardLog bytes, the checkpoint waits for them, and the new ones read the
// file; then the log is cut.
const (
	softLog = 1000
	hardLog = 64 << 20
	// pagesOfWrite is about how many pages one write changes: rows of three
	// tables and of their indexes.
	pagesOfWrite = 10
)

type checkpointer struct {
	store *Store
	conn  *conn
	wake  chan struct{}
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once
	pages atomic.Int64 // written since the last checkpoint, roughly
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
		if _, err := p.conn.integer(query); err != nil {
			p.store.log.Error("checkpoint failed; it will be tried again", "store", p.store.path, "error", err)
		}
	}
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
