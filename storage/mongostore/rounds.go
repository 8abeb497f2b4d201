package mongostore

import (
	"context"
	"sync"
)

// rounds runs something for all that ask before it begins, one run after the other.
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

// ask asks for a round that has not begun yet.
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
