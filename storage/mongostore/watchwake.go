package mongostore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// waker wakes the watches of a store when something may have arrived: after a
// commit or a load of this server, and after a change of the database, where
// that has change streams. It has one stream while there are watches, however
// many, and so takes no more than one connection of those that commits and reads
// need, and wakes them now and then all the same.
//
// A stream says that, not what: watches read what is stored, so that one that
// breaks, or begins late, costs time and nothing else.
type waker struct {
	mu      sync.Mutex
	woken   chan struct{} // closed when there may be something; nil: nobody looks
	watches int
	stop    context.CancelFunc
	guarded bool // the stream is open

	found atomic.Bool // something had arrived when the watches were woken
	// For tests: how long watches are left to sleep, instead of what is usual.
	patience time.Duration
}

const (
	// How long it waits at first, and at last, before it wakes the watches for
	// no reason: without change streams, and with them, where this is only a
	// safeguard.
	firstSleep   = 20 * time.Millisecond
	lastSleep    = time.Second
	guardedSleep = 10 * time.Second
	// streamAwait is how long the server waits for changes before it answers that
	// there are none.
	streamAwait = time.Second
	// The pause after an answer without a change. A server that waits, as it is
	// asked to, makes the longest one part in twenty.
	firstIdle = time.Millisecond
	lastIdle  = 50 * time.Millisecond
	// reopenPause is how long after an error a stream is opened anew.
	reopenPause = 5 * time.Second
	// endedPause is that after the server has ended one.
	endedPause = 50 * time.Millisecond
)

// ask wakes the watches now and then, ever more seldom while nothing arrives:
// what woke them may be a commit that another server has in flight, and that Now
// comes to only a little later.
func (w *waker) ask(ctx context.Context) {
	sleep := max(firstSleep, w.patience)
	for ctx.Err() == nil {
		woken, guarded := w.look()
		longest := max(lastSleep, w.patience)
		if guarded {
			longest = max(guardedSleep, w.patience)
		}
		timer := time.NewTimer(sleep)
		select {
		case <-woken:
			sleep = firstSleep
		case <-timer.C:
			w.wake()
			if sleep *= 2; w.found.Swap(false) {
				sleep = firstSleep
			}
			if sleep > lastSleep {
				sleep = min(max(sleep, w.patience), longest)
			}
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// look returns what is closed when something may have arrived since, and whether
// the change stream is open.
func (w *waker) look() (woken <-chan struct{}, guarded bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken == nil {
		w.woken = make(chan struct{})
	}
	return w.woken, w.guarded
}

// wake wakes all watches.
func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken != nil {
		close(w.woken)
		w.woken = nil
	}
}

// idle reports whether there are no watches.
func (w *waker) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches == 0
}

// join is called by a watch that begins, and leave by one that ends.
func (w *waker) join(s *Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches++; w.watches > 1 {
		return
	}
	ctx, stop := context.WithCancel(s.life)
	w.stop, w.guarded = stop, false
	go w.ask(ctx)
	go w.listen(ctx, s)
}

func (w *waker) leave(s *Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches--; w.watches == 0 {
		w.stop()
		w.guarded = false
		s.sharing.forget()
	}
}

// opened notes whether the stream is open, in the time of a context.
func (w *waker) opened(ctx context.Context, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() == nil {
		w.guarded = open
	}
}

// listen wakes the watches with every change of the collections, until the
// context ends, or the server says that it has no change streams.
func (w *waker) listen(ctx context.Context, s *Store) {
	for ctx.Err() == nil {
		err := w.follow(ctx, s)
		var refused mongo.ServerError
		if ctx.Err() != nil || errors.As(err, &refused) && !isUnreachable(err) && !s.replicated(ctx) {
			return
		}
		if errors.Is(err, errStreamEnded) {
			pause(ctx, endedPause)
			continue
		}
		s.logger.WarnContext(ctx, "no change stream; watches find what other servers write by asking", "error", err)
		pause(ctx, reopenPause)
	}
}

// errStreamEnded: the server ended a stream, as it does when the database is
// dropped or renamed.
var errStreamEnded = errors.New("the server ended the change stream")

// follow opens a stream and wakes the watches with every change.
func (w *waker) follow(ctx context.Context, s *Store) error {
	var names bson.A
	for _, c := range s.collections {
		names = append(names, c.main.Name())
	}
	only := mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "ns.coll", Value: in(names)}}}},
		{{Key: "$project", Value: bson.D{{Key: "operationType", Value: 1}}}},
	}
	stream, err := s.db.Watch(ctx, only, options.ChangeStream().SetMaxAwaitTime(streamAwait))
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTimeout)
		defer cancel()
		_ = stream.Close(closing) // the server forgets it by itself otherwise
	}()
	w.opened(ctx, true)
	defer w.opened(ctx, false)
	w.wake() // what came before it was open
	idle := firstIdle
	for ctx.Err() == nil {
		if stream.TryNext(ctx) {
			w.wake()
			idle = firstIdle
			continue
		}
		switch {
		case stream.Err() != nil:
			return stream.Err()
		case stream.ID() == 0:
			return errStreamEnded
		}
		pause(ctx, idle)
		idle = min(2*idle, lastIdle)
	}
	return ctx.Err()
}

// replicated reports whether the server is one that has change streams.
func (s *Store) replicated(ctx context.Context) bool {
	h, err := s.hello(ctx)
	return err != nil || h.replicated() // not known: it may
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
