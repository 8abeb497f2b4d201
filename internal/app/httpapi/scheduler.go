package httpapi

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/vektah/gqlparser/v2/gqlerror"
)

// turn is how long events are sent to a subscription before it is another one's turn, and how
// long its turn keeps others waiting where it takes longer: it may wait for a place, or for its
// client.
const turn = 5 * time.Millisecond

// rest is how long events are sent until there is a rest as long, and longer by whileWritten where
// more was committed meanwhile: what piles up is sent at once, which costs who writes less.
const (
	rest         = time.Millisecond
	whileWritten = 3 * time.Millisecond
)

// mostAtOnce is about how many bytes a subscription is sent at a time.
const mostAtOnce = 256 << 10

// scheduler has events sent to subscriptions. A few have their turn at a time: a commit may
// concern thousands, which together would keep the processors from who writes. Clients take
// turns, and the subscriptions of each. One that waits for events has no goroutine.
type scheduler struct {
	notify func(grown func()) (stop func())
	now    func() time.Time

	mu      sync.Mutex
	free    int                        // how many more may have their turn now
	clients []string                   // with subscriptions that are ready, in the order of their turns
	ready   map[string][]*subscription // by client, as clients has them; some may have ended
	waiting []*subscription            // for events; some may have ended
	grown   uint64                     // how often there may have been events
	looked  uint64                     // what that was when those that wait were made ready
	count   int                        // of subscriptions
	stop    func()                     // ends notify; there is one while there are subscriptions
}

// subscription is a subscription that has begun. Whose turn it is, is guarded by the scheduler's lock,
// the rest by its turn.
type subscription struct {
	run     *run
	ctx     context.Context
	same    selection
	watch   Watch
	send    func(events []*batch) bool // sends answers to events; false: nobody waits for more
	ended   func(wrong gqlerror.List)  // is called when it has ended; nil: for no error
	stop    func()                     // ends ctx
	spent   time.Duration              // of execution, on what was there before it began
	running bool                       // it has its turn
	over    bool                       // it has ended, or ends with its turn
}

// add has events sent to a subscription from now on.
func (t *scheduler) add(s *subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count++; t.count == 1 {
		t.stop = t.notify(t.grow)
	}
	t.queue(s)
	t.start()
	context.AfterFunc(s.ctx, func() { t.end(s) })
}

// grow notes that there may be events.
func (t *scheduler) grow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grown++
	t.start()
}

// end ends a subscription whose context has ended.
func (t *scheduler) end(s *subscription) {
	t.mu.Lock()
	mine := !s.over && !s.running
	s.over = true
	t.mu.Unlock()
	if mine {
		t.finish(s, nil)
	}
}

// finish is called once for each subscription, when nothing is sent to it any more.
func (t *scheduler) finish(s *subscription, wrong gqlerror.List) {
	t.mu.Lock()
	if t.count--; t.count == 0 {
		t.stop()
		t.waiting = nil
	}
	t.mu.Unlock()
	s.ended(wrong)
	s.stop()
}

// The methods below are called with the lock held.

// queue makes a subscription ready for a turn.
func (t *scheduler) queue(s *subscription) {
	client := s.run.op.client
	line, ok := t.ready[client]
	if !ok {
		t.clients = append(t.clients, client)
	}
	t.ready[client] = append(line, s)
}

// next takes the subscription whose turn it is; nil: none is ready.
func (t *scheduler) next() *subscription {
	for len(t.clients) > 0 {
		client := t.clients[0]
		line := t.ready[client]
		t.clients = t.clients[1:]
		if len(line) > 1 {
			t.ready[client] = line[1:]
			t.clients = append(t.clients, client)
		} else {
			delete(t.ready, client)
		}
		if s := line[0]; !s.over {
			return s
		}
	}
	return nil
}

// start begins another goroutine that gives turns, if there is a place for one more.
func (t *scheduler) start() {
	if t.free > 0 {
		t.free--
		go t.work()
	}
}

// work gives turns until no subscription is ready, or its place was given to another.
func (t *scheduler) work() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for began, grown := t.now(), t.grown; ; {
		if t.looked != t.grown {
			t.looked = t.grown
			for _, s := range t.waiting {
				t.queue(s)
			}
			t.waiting = t.waiting[:0]
		}
		s := t.next()
		if s == nil {
			t.free++
			return
		}
		if len(t.clients) > 0 {
			t.start()
		}
		if !t.turn(s) {
			t.start() // what was given the place may have found nothing
			return
		}
		if worked := t.now().Sub(began); worked >= rest {
			if t.grown != grown {
				worked += whileWritten
			}
			grown = t.grown
			t.mu.Unlock()
			time.Sleep(worked)
			t.mu.Lock()
			began = t.now()
		}
	}
}

// turn gives a subscription its turn, without the lock. It reports whether the place is still the
// caller's.
func (t *scheduler) turn(s *subscription) (kept bool) {
	s.running = true
	grown, done := t.grown, false
	kept = true
	t.mu.Unlock()
	timer := time.AfterFunc(turn, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !done {
			kept = false
			t.free++
			t.start()
		}
	})
	seen, more, wrong := s.deliver(grown, t.now)
	t.mu.Lock()
	s.running = false
	switch {
	case s.over || wrong != nil:
		s.over = true
		t.mu.Unlock()
		t.finish(s, wrong)
		t.mu.Lock()
	case more || t.grown != seen:
		t.queue(s)
	default:
		t.waiting = append(t.waiting, s)
	}
	timer.Stop()
	done = true
	return kept
}

// deliver sends what there is, for as long as a turn, when the log has grown so often. It returns how
// often it had grown when that was read, and whether there is more; or the errors that end the
// subscription.
func (s *subscription) deliver(grown uint64, now func() time.Time) (seen uint64, more bool, wrong gqlerror.List) {
	h := s.run.h
	defer func() {
		if failure := recover(); failure != nil {
			wrong = h.panicked(s.ctx, s.run.op.request, failure).list()
		}
	}()
	var events []*batch
	answers := false
	for size, cut := 0, true; cut && wrong == nil && size < mostAtOnce; {
		key := batchKey{s.same, s.watch.Place()}
		next, mine := h.batches.from(key)
		if !mine {
			select {
			case <-next.done:
			case <-s.ctx.Done():
				return grown, false, nil
			}
		}
		switch {
		case mine:
			next.grown, cut = grown, false // before others see it
			wrong = s.share(key, next, now)
		case next.end == nil: // it may be about the other
			next = &batch{grown: grown}
			cut, wrong = false, s.read(next, now)
		case s.run.op.hold.GrowWait(s.ctx, int64(next.size), h.cfg.Limits.Wait) != nil:
			next, wrong = &batch{}, outOfMemory().list()
		default:
			s.watch.Follow(next.end)
			cut = next.cut
		}
		events, answers = append(events, next), answers || len(next.answers) > 0
		size, seen, more = size+next.size, next.grown, next.more
	}
	if answers && !s.send(events) {
		s.stop()
	}
	s.run.op.hold.Set(s.run.base)
	switch {
	case s.ctx.Err() != nil:
		return seen, false, nil
	case s.left() <= 0:
		wrong = gqlerror.List{refuse(codeTooSlow, spentOnPast)}
	}
	if wrong != nil {
		ended := *wrong[0] // others may have the same
		ended.Extensions = map[string]any{"position": s.watch.Position()}
		maps.Copy(ended.Extensions, wrong[0].Extensions)
		wrong = gqlerror.List{&ended}
	}
	return seen, more, wrong
}

// share is read of a batch that others wait for.
func (s *subscription) share(key batchKey, out *batch, now func() time.Time) gqlerror.List {
	defer s.run.h.batches.read(key, out)
	return s.read(out, now)
}

// read reads events and answers them, for as long as a turn. Where that fails, the subscription
// ends, or there is no event, the batch has no end.
func (s *subscription) read(out *batch, now func() time.Time) (wrong gqlerror.List) {
	h := s.run.h
	past := s.watch.Past()
	if past && s.run.op.hold.GrowWait(s.ctx, pastBytes, h.cfg.Limits.Wait) != nil {
		return outOfMemory().list()
	}
	var over time.Time
	ctx, began := s.ctx, now()
	spent, used := s.spent, time.Duration(0)
	if past {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(s.ctx, s.left())
		defer cancel()
		used = h.cfg.CPU()
	}
	more, err := s.watch.Next(ctx, func(event Event) bool {
		at := now()
		s.spent += at.Sub(began)
		switch {
		case over.IsZero():
			over = at.Add(turn)
		case at.After(over), out.size > mostAtOnce, s.left() <= 0:
			out.cut = true
			return false
		}
		left := s.left()
		text, took, failed := s.run.answerTo(s.ctx, event, left)
		if s.spent += took; took >= left && failed != nil { // it was stopped
			used = 0
		}
		began = now()
		if text != nil {
			out.answers, out.size = append(out.answers, *text), out.size+text.size()
			if past && text.size() > largeAnswer {
				runtime.GC() // else the next ones are made before what this one took is found to be free
			}
		}
		wrong = failed
		return wrong == nil && s.ctx.Err() == nil
	})
	if s.spent += now().Sub(began); used > 0 { // other processes may have had the processors
		s.spent = min(s.spent, spent+h.cfg.CPU()-used)
	}
	switch out.more = more; {
	case wrong != nil || s.ctx.Err() != nil:
	case err == nil && over.IsZero(): // others find no event as soon
	case err == nil:
		out.end = s.watch.Place()
	case ctx.Err() != nil:
		out.more = true // some of its time was spent on waiting
	default:
		wrong = gqlerror.List{h.exec.present(s.ctx, err)}
	}
	return wrong
}

// left is how long more the subscription may be executed: two thirds of a query's time for all that
// was there before it began, since many events take long to send, and a query's for each event after that.
func (s *subscription) left() time.Duration {
	most := s.run.h.cfg.Limits.Execution
	if s.watch.Past() {
		most = most/3*2 - s.spent
	}
	return most
}

const spentOnPast = "what was committed before the subscription began takes longer to look through than this server allows at a time (--max-execution): " +
	"subscribe again behind the position; with fewer fields and conditions it gets further"
