package httpapi

import (
	"context"
	"sync"
	"sync/atomic"
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

	// What follows is of execution, see execute.
	executing  time.Time
	most, used time.Duration
	cpu        func() time.Duration
	finishes   bool

	timer atomic.Pointer[timer] // nil: nobody waits
	mu    sync.Mutex            // for changes
	err   error
}

// execute says that the operation is executed from now on, and may take so long, unless it
// finishes what it has begun (a mutation, whose next root field is not begun then): by the
// clock, and by the processor time of the process, since a machine that is busy with other
// things says nothing of an operation. It has to be called before the context is shared. The
// end is noticed by those that look whether they may go on.
func (t *timed) execute(most time.Duration, cpu func() time.Duration, finishes bool) {
	t.most, t.cpu, t.finishes = most, cpu, finishes
	t.executing = t.now()
	t.used = cpu()
}

// exhausted reports whether the operation was executed for as long as it may be.
func (t *timed) exhausted(now time.Time) bool {
	return t.cpu != nil && now.Sub(t.executing) >= t.most && t.cpu()-t.used >= t.most
}

// timer is a context that ends as a timed one.
type timer struct {
	context.Context
	cancel context.CancelFunc
}

// newTimed returns a context that ends after a time, or with end.
func newTimed(ctx context.Context, op *operation, now func() time.Time, length time.Duration) *timed {
	return &timed{Context: ctx, op: op, now: now, until: now().Add(length)}
}

// Deadline is when the time is over, by the system's clock, which the timer has:
// who asks compares with that.
func (t *timed) Deadline() (time.Time, bool) { return t.running().Deadline() }

// Value returns the operation, or what the other context has.
func (t *timed) Value(key any) any {
	if key == (operationKey{}) {
		return t.op
	}
	if running := t.timer.Load(); running != nil { // contexts that are made of this one look for the one that ends
		return running.Value(key)
	}
	return t.Context.Value(key)
}

// Done is closed when the context ends.
func (t *timed) Done() <-chan struct{} { return t.running().Done() }

// running starts the timer, unless it runs.
func (t *timed) running() *timer {
	if running := t.timer.Load(); running != nil {
		return running
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	running := t.timer.Load()
	if running == nil {
		ctx, cancel := context.WithTimeout(t.Context, t.until.Sub(t.now()))
		if t.err != nil {
			cancel()
		}
		running = &timer{ctx, cancel}
		t.timer.Store(running)
	}
	return running
}

// Err says why the context has ended.
func (t *timed) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	running, now := t.timer.Load(), t.now()
	switch {
	case t.err != nil:
	case running != nil && running.Err() != nil:
		t.err = running.Err()
	case running == nil && t.Context.Err() != nil:
		t.err = t.Context.Err()
	case running == nil && !now.Before(t.until), !t.finishes && t.exhausted(now):
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
	if running := t.timer.Load(); running != nil {
		running.cancel()
	}
}
