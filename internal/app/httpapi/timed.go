package httpapi

import (
	"context"
	"sync"
	"time"
)

// timed is the context of an operation: it has the operation among its values,
// and ends after a time, as a context of context.WithTimeout does. But it has no
// timer until somebody waits for its end: most operations are over soon, and only
// look whether they may go on.
type timed struct {
	context.Context // the one that it was made of
	op              *operation
	now             func() time.Time
	until           time.Time

	mu     sync.Mutex
	err    error
	timer  context.Context // ends as this one; nil: nobody waits
	cancel context.CancelFunc
}

// newTimed returns a context that ends after a time, or with end.
func newTimed(ctx context.Context, op *operation, now func() time.Time, length time.Duration) *timed {
	return &timed{Context: ctx, op: op, now: now, until: now().Add(length)}
}

// Deadline is when the time is over.
func (t *timed) Deadline() (time.Time, bool) {
	if earlier, ok := t.Context.Deadline(); ok && earlier.Before(t.until) {
		return earlier, true
	}
	return t.until, true
}

// Value returns the operation, or what the other context has.
func (t *timed) Value(key any) any {
	if key == (operationKey{}) {
		return t.op
	}
	t.mu.Lock()
	timer := t.timer
	t.mu.Unlock()
	if timer != nil { // contexts that are made of this one look for the one that ends
		return timer.Value(key)
	}
	return t.Context.Value(key)
}

// Done is closed when the context ends.
func (t *timed) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		t.timer, t.cancel = context.WithTimeout(t.Context, t.until.Sub(t.now()))
		if t.err != nil {
			t.cancel()
		}
	}
	return t.timer.Done()
}

// Err says why the context has ended.
func (t *timed) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
	case t.timer != nil:
		t.err = t.timer.Err()
	case t.Context.Err() != nil:
		t.err = t.Context.Err()
	case !t.now().Before(t.until):
		t.err = context.DeadlineExceeded
	}
	return t.err
}

// end ends the context, if it has not ended.
func (t *timed) end() {
	err := t.Err()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err = err; err == nil {
		t.err = context.Canceled
	}
	if t.cancel != nil {
		t.cancel()
	}
}
