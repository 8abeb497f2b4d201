package storage

import (
	"context"
	"sync"
	"time"

	"github.com/asof/asof/storage/driver"
)

// feed is what the watches of a store share: being woken, and the rounds in which the log
// is read, so that a commit is read once and not by each watch.
type feed struct {
	mu      sync.Mutex
	woken   chan struct{} // closed when the log may have grown; nil: nobody looks
	watches int
	timer   *time.Timer // wakes the watches for what other processes commit
	sleep   time.Duration
	rounds  []*watchRound // none begins before the end of the one before it
	held    int           // bytes of their versions
}

// watchRound is the log of (from, to].
type watchRound struct {
	from, to driver.Instant // to is known when done is closed
	versions []*driver.Version
	bytes    int
	more     bool            // it ends before now, as it got too large
	woken    <-chan struct{} // closed when the log may have grown since the round began; nil where it is not shared
	done     chan struct{}
	err      error
}

// How long watches sleep at first and at most where nothing wakes them; and what a round,
// and all that are kept, may hold.
const (
	firstWatchSleep = 20 * time.Millisecond
	lastWatchSleep  = time.Second
	roundVersions   = 256
	roundBytes      = 1 << 20
	keptRounds      = 64
	keptRoundBytes  = 8 << 20
)

// join is called by a watch that begins, and leave by one that ends.
func (f *feed) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches++; f.watches == 1 {
		f.sleep = firstWatchSleep
		f.timer = time.AfterFunc(f.sleep, f.tick)
	}
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches--; f.watches == 0 {
		f.timer.Stop()
		f.rounds, f.held = nil, 0
	}
}

// tick wakes the watches, ever more seldom while nothing is found.
func (f *feed) tick() {
	f.wake()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches > 0 {
		f.sleep = min(2*f.sleep, lastWatchSleep)
		f.timer.Reset(f.sleep)
	}
}

// look returns what is closed when the log may have grown since.
func (f *feed) look() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.woken == nil {
		f.woken = make(chan struct{})
	}
	return f.woken
}

// wake wakes all watches.
func (f *feed) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.woken != nil {
		close(f.woken)
		f.woken = nil
	}
}

// last reports whether no round follows on an instant yet.
func (f *feed) last(at driver.Instant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.rounds)
	return n == 0 || f.rounds[n-1].from < at
}

// round returns the round that begins at an instant, and reads it if nobody has; nil where
// the instant lies before the end of the last one, and no round begins there.
func (f *feed) round(ctx context.Context, s *Store, from driver.Instant) (*watchRound, error) {
	r, mine := f.find(from)
	switch {
	case r == nil:
		return nil, nil
	case mine:
		f.read(ctx, s, r)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, fromDriver(ctx, ctx.Err())
	}
	if r.err != nil && !mine && ctx.Err() == nil { // it may be about the one who read
		own := &watchRound{from: from, done: make(chan struct{})}
		own.fill(ctx, s)
		return own, own.err
	}
	return r, r.err
}

// find finds a round, or begins one, which is then the caller's to read.
func (f *feed) find(from driver.Instant) (r *watchRound, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rounds {
		if r.from == from {
			return r, false
		}
	}
	if n := len(f.rounds); n > 0 {
		select {
		case <-f.rounds[n-1].done:
			if from < f.rounds[n-1].to {
				return nil, false
			}
		default: // it is not known where it ends
			return nil, false
		}
	}
	if f.woken == nil {
		f.woken = make(chan struct{})
	}
	r = &watchRound{from: from, woken: f.woken, done: make(chan struct{})}
	f.rounds = append(f.rounds, r)
	return r, true
}

// read reads a round for all, and keeps it if anything is in it.
func (f *feed) read(ctx context.Context, s *Store, r *watchRound) {
	r.fill(ctx, s)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer close(r.done)
	if r.err != nil || r.to == r.from {
		if n := len(f.rounds); n > 0 && f.rounds[n-1] == r {
			f.rounds = f.rounds[:n-1]
		}
		return
	}
	if len(r.versions) > 0 {
		f.sleep = firstWatchSleep
	}
	for f.held += r.bytes; len(f.rounds) > 1 && (len(f.rounds) > keptRounds || f.held > keptRoundBytes); f.rounds = f.rounds[1:] {
		f.held -= f.rounds[0].bytes
	}
}

// fill reads what is in a round, which ends where it gets too large, but holds all
// versions of an instant.
func (r *watchRound) fill(ctx context.Context, s *Store) {
	r.to = r.from
	until, err := s.watchedUntil(ctx, r.from)
	if err != nil {
		r.err = err
		return
	}
	q := &driver.LogQuery{Collections: s.collections(), From: r.from + 1, To: until + 1}
	for v, err := range s.readLog(ctx, q) {
		if err != nil {
			r.err = err
			return
		}
		if n := len(r.versions); (n >= roundVersions || r.bytes >= roundBytes) && v.RecordedAt > r.versions[n-1].RecordedAt {
			r.to, r.more = r.versions[n-1].RecordedAt, true
			return
		}
		r.versions = append(r.versions, v)
		r.bytes += len(v.Data)
	}
	r.to = until
}

// collections are those of the types.
func (s *Store) collections() []string {
	names := make([]string, len(s.types))
	for i, t := range s.types {
		names[i] = t.Collection
	}
	return names
}
