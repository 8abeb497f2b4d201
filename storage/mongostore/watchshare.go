package mongostore

import (
	"context"
	"errors"
	"sync"

	"github.com/asof/asof/storage/driver"
)

// sharing lets the watches of a store that have caught up go through the same
// rounds, each of which one of them has read for all: however many there are,
// what arrives is read once. A watch that begins, or that fell behind, reads a
// round of its own, up to where the last shared one ended, and then shares.
type sharing struct {
	mu       sync.Mutex
	rounds   []*sharedRound // none begins before the one before ended; the last may be in the making
	versions int
	bytes    int
}

// Bounds of one shared round, and of those that are kept. A round that exceeds
// them is read by each watch for itself, a part at a time.
const (
	sharedVersions = 1000
	sharedBytes    = 4 << 20
	keptRounds     = 64
	keptVersions   = 4 * sharedVersions
	keptBytes      = 2 * sharedBytes
)

// sharedRound is what arrived in (from, to].
type sharedRound struct {
	from, to driver.Instant    // to 0: it is being read
	versions []*driver.Version // in the order of a round
	bytes    int
	done     chan struct{} // closed when the rest is known
	tooLarge bool
	err      error
}

// next returns the shared round that begins at an instant, or has it read. It
// returns nil where there is none: then the watch is behind the shared rounds,
// and has to read by itself up to join.
func (h *sharing) next(ctx context.Context, s *Store, from driver.Instant) (r *sharedRound, join driver.Instant, err error) {
	for {
		r, join = h.at(s, from)
		if r == nil {
			return nil, join, nil
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		switch {
		case r.from != from: // waited for, to see where it ends
		case r.err != nil:
			return nil, 0, r.err
		case r.tooLarge:
			return nil, r.to, nil
		default:
			return r, 0, nil
		}
	}
}

// at returns the round that begins at an instant, perhaps a new one, or the one
// that is being read, whose end is to be awaited; nil and an instant: where shared
// rounds lie behind it.
func (h *sharing) at(s *Store, from driver.Instant) (*sharedRound, driver.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, known := range h.rounds {
		if known.from == from {
			return known, 0
		}
	}
	if n := len(h.rounds); n > 0 {
		switch last := h.rounds[n-1]; {
		case last.to == 0 && n > 1 && from < h.rounds[n-2].to:
			return nil, h.rounds[n-2].to
		case last.to == 0:
			return last, 0 // it may begin ahead of now: only its end says where it was
		case from < last.to:
			return nil, last.to
		}
	}
	r := &sharedRound{from: from, done: make(chan struct{})}
	h.rounds = append(h.rounds, r)
	go h.make(s, r)
	return r, 0
}

// make reads a round for all, and keeps it where there is still a watch.
func (h *sharing) make(s *Store, r *sharedRound) {
	h.read(s, r)
	if s.waker.idle() {
		h.forget()
	}
}

var errTooLarge = errors.New("too much for a shared round")

// read reads a round.
func (h *sharing) read(s *Store, r *sharedRound) {
	to, err := s.Now(s.life)
	to = max(to, r.from)
	var versions []*driver.Version
	bytes := 0
	if err == nil && to > r.from {
		w := &watching{store: s, place: watchPlace{from: r.from, to: to}, yield: func(a driver.Arrival, _ error) bool {
			versions = append(versions, a.Version)
			bytes += len(a.Version.Data)
			return len(versions) <= sharedVersions && bytes <= sharedBytes
		}}
		if err = w.choose(&driver.WatchQuery{}); err == nil {
			err = w.round(s.life)
		}
		if w.left {
			err = errTooLarge
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(r.done)
	switch {
	case errors.Is(err, errTooLarge):
		r.to, r.tooLarge = to, true
	case err != nil, to == r.from: // as if it had not been begun; it is the last
		r.to, r.err = to, err
		h.rounds = h.rounds[:len(h.rounds)-1]
		return
	default:
		r.to, r.versions, r.bytes = to, versions, bytes
	}
	h.versions, h.bytes = h.versions+len(r.versions), h.bytes+r.bytes
	for len(h.rounds) > 1 && (len(h.rounds) > keptRounds || h.versions > keptVersions || h.bytes > keptBytes) {
		h.versions, h.bytes = h.versions-len(h.rounds[0].versions), h.bytes-h.rounds[0].bytes
		h.rounds = h.rounds[1:]
	}
}

// ended reports whether no shared round follows on one.
func (h *sharing) ended(r *sharedRound) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rounds) == 0 || h.rounds[len(h.rounds)-1].from <= r.from
}

// forget drops what is kept, when no watch is left.
func (h *sharing) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.rounds); n > 0 && h.rounds[n-1].to == 0 {
		return // one is being read, and they are forgotten then
	}
	h.rounds, h.versions, h.bytes = nil, 0, 0
}
