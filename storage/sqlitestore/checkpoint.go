package sqlitestore

import (
	"os"
	"sync"
)

// The write-ahead log is moved into the file when it has grown to softLog
// bytes, beside the writer, who goes on. SQLite then starts the log anew as
// soon as no reader needs it, which is soon: reads here are short. Should
// readers follow each other so closely that this never happens until hardLog
// bytes, the checkpoint waits for them, and the new ones read the file.
const (
	softLog = 4 << 20
	hardLog = 64 << 20
)

type checkpointer struct {
	store *Store
	conn  *conn
	wake  chan struct{}
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once
}

func startCheckpointer(s *Store, c *conn) *checkpointer {
	p := &checkpointer{store: s, conn: c, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go p.loop()
	return p
}

// poke says that the log may have grown.
func (p *checkpointer) poke() {
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
		size := p.size()
		if size < softLog {
			continue
		}
		query := "PRAGMA wal_checkpoint(PASSIVE)"
		if size > hardLog {
			query = "PRAGMA wal_checkpoint(RESTART)"
		}
		if _, err := p.conn.integer(query); err != nil {
			p.store.log.Error("checkpoint failed; it will be tried again", "store", p.store.path, "error", err)
		}
	}
}

// size returns the length of the log in bytes. The log is reused from its
// start without being cut, so this is an upper bound; 0 if there is none.
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
