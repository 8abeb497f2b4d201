package mongostore

import (
	"context"
	"sync"
)

// rounds runs a function for all callers that ask before it begins. Runs do not overlap.
type rounds struct {
	run  func() error
	mu   sync.Mutex
	next *round
	busy bool
}

type round struct {
	done chan struct{}
	err  error // to be read when done is closed
}

// ask returns a round that has not begun yet, and starts it if none is running.
func (r *rounds) ask() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	if !r.busy {
		r.busy = true
		go r.work()
	}
	return r.next
}

func (r *rounds) work() {
	for {
		r.mu.Lock()
		this := r.next
		r.next, r.busy = nil, this != nil
		r.mu.Unlock()
		if this == nil {
			return
		}
		this.err = r.run()
		close(this.done)
	}
}

// do waits for a round that begins after the call, and returns its error, or that of the context.
func (r *rounds) do(ctx context.Context) error {
	this := r.ask()
	select {
	case <-this.done:
		return this.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
