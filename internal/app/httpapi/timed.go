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

	starting sync.Mutex            // the timer
	timer    atomic.Pointer[timer] // nil: nobody waits
	ended    atomic.Pointer[error] // why it has ended; nil: it has not
}

// processor tells how much processor time the process has used.
type processor struct {
	now  func() time.Duration
	last atomic.Pointer[reading]
}

type reading struct {
	at   time.Time
	used time.Duration
}

// before returns how much had been used at some time until then, at most so long before: to
// ask for it is a system call, and most operations are over soon.
func (p *processor) before(at time.Time, most time.Duration) time.Duration {
	last := p.last.Load()
	if last == nil || at.Sub(last.at) > most {
		last = &reading{at, p.now()}
		p.last.Store(last)
	}
	return last.used
}

// inaccuracy is how many times longer an operation may take than what was asked for is old:
// it may have that much less time, for each processor, and never more.
const inaccuracy = 32

// execute says that the operation has been executed since then, and may take so long, unless
// it finishes what it has begun (a mutation, whose next root field is not begun then): by the
// clock, and by the processor time of the process, since a machine that is busy with other
// things says nothing of an operation. It has to be called before the context is shared. The
// end is noticed by those that look whether they may go on.
func (t *timed) execute(since time.Time, most time.Duration, p *processor, finishes bool) {
	t.executing, t.used, t.most, t.cpu, t.finishes = since, p.before(since, most/inaccuracy), most, p.now, finishes
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

// newTimed makes an operation's context, which ends at a time, or with end.
func newTimed(ctx context.Context, op *operation, now func() time.Time, until time.Time) *timed {
	t := &op.timed
	t.Context, t.op, t.now, t.until = ctx, op, now, until
	return t
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
	t.starting.Lock()
	defer t.starting.Unlock()
	running := t.timer.Load()
	if running == nil {
		ctx, cancel := context.WithTimeout(t.Context, t.until.Sub(t.now()))
		running = &timer{ctx, cancel}
		t.timer.Store(running)
		if t.ended.Load() != nil {
			cancel()
		}
	}
	return running
}

// Err says why the context has ended.
func (t *timed) Err() error {
	if ended := t.ended.Load(); ended != nil {
		return *ended
	}
	running, now := t.timer.Load(), t.now()
	var err error
	switch {
	case running != nil:
		err = running.Err()
	case !now.Before(t.until):
		err = context.DeadlineExceeded
	default:
		err = t.Context.Err()
	}
	if err == nil && !t.finishes && t.exhausted(now) {
		err = context.DeadlineExceeded
	}
	if err == nil {
		return nil
	}
	ended := err // what is pointed to is allocated
	return t.endWith(&ended)
}

// end ends the context, if it has not ended.
func (t *timed) end() {
	if t.Err() == nil {
		_ = t.endWith(&context.Canceled)
	}
}

// endWith ends the context, unless something else did, also for those that wait, and
// returns why it has ended.
func (t *timed) endWith(err *error) error {
	t.ended.CompareAndSwap(nil, err)
	if running := t.timer.Load(); running != nil {
		running.cancel()
	}
	return *t.ended.Load()
}
