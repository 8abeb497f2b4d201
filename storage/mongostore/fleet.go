package mongostore

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// fleet is the servers on one database, as one of them sees them. It keeps
// what was read at an instant the same for ever, whichever server was asked,
// and whatever their clocks say:
//
//   - A server that is alone uses its own clock, without asking anyone. In
//     each beat it notes in the clock document up to where it will hand out
//     instants, so that nobody falls behind them when it is killed.
//   - Servers that are not alone share the clock document: a commit takes its
//     time there, after all times taken before, and is noted there as in
//     flight until it has landed; an instant to read at is the last time
//     taken, or the one just before the first in flight.
//   - A server that comes in waits until nobody takes himself to be alone any
//     more, before it hands out the first instant.
//   - A server that has not moved the document in deadBeats beats, while
//     others could, is removed. One that was alone stops committing well
//     before that; one that shares finds no time to take.
//
// What is assumed is that the database does not carry out a command later
// than deadBeats beats after its server had stopped to beat.
//
// One goroutine makes all changes of the document, one after the other.
type fleet struct {
	clock  *clock
	doc    *clockDocument
	every  time.Duration         // between two beats
	onBeat func(context.Context) // called now and then
	// complete completes the loads of servers that are not there any more.
	complete func(context.Context) error

	life   context.Context
	stop   context.CancelFunc
	heirs  sync.WaitGroup
	kicked chan struct{}
	ended  chan struct{}
	silent map[string]silence
	ahead  driver.Instant // how far the mark was ahead of this server's clock

	mu      sync.Mutex
	looking bool
	next    *lookCall
	failed  error // of the last exchange
}

// silence is how long a server has not moved the document.
type silence struct {
	state serverState
	polls int
	heard time.Duration // when a poll last counted
}

type lookCall struct {
	done  chan struct{}
	whole bool // what it learned is all that there is
	err   error
}

// How often servers beat, and what follows from how many beats that are missed.
const (
	beatEvery  = 500 * time.Millisecond
	leaseBeats = 3 // a server that is alone stops to commit
	aheadBeats = 4 // as many does it note instants ahead
	deadBeats  = 6 // a server is taken for dead
	lookPause  = time.Millisecond
	lookPauses = 50 * time.Millisecond
	// joinPolls is how often a beat a server that comes in looks at the others.
	joinPolls = 5
	// aheadDecay is the part of ahead that is forgotten in a beat.
	aheadDecay = 8
	// skewBeats is how many beats are between two comparisons of clocks.
	skewBeats = 10
)

func newFleet(meta *mongo.Collection, c *clock, every time.Duration) *fleet {
	if every == 0 {
		every = beatEvery
	}
	f := &fleet{
		clock: c, doc: &clockDocument{meta: meta, id: rand.Text()}, every: every,
		onBeat: func(context.Context) {}, complete: func(context.Context) error { return nil },
		kicked: make(chan struct{}, 1), ended: make(chan struct{}), silent: make(map[string]silence),
	}
	c.kick = f.kick
	return f
}

func (f *fleet) kick() {
	select {
	case f.kicked <- struct{}{}:
	default: // it is kicked already
	}
}

// start comes in, and returns when instants can be handed out.
func (f *fleet) start(ctx, life context.Context) error {
	if err := f.doc.join(ctx, f.clock.last, 0); err != nil {
		return err
	}
	f.life, f.stop = context.WithCancel(life)
	go f.run(f.life)
	c := f.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mode != alone && c.mode != shared || c.debts > 0 {
		if err := c.await(ctx); err != nil {
			return errors.Join(err, f.failure())
		}
	}
	return nil
}

// run beats, and does what it is kicked for, until life ends.
func (f *fleet) run(life context.Context) {
	defer close(f.ended)
	f.step(life, true)
	beat := time.NewTicker(f.every)
	defer beat.Stop()
	poll := time.NewTicker(f.every / joinPolls)
	defer poll.Stop()
	beats := 0
	for {
		due := false
		select {
		case <-life.Done():
			return
		case <-f.kicked:
		case <-poll.C:
			f.clock.mu.Lock()
			settled := f.clock.mode == alone || f.clock.mode == shared
			f.clock.mu.Unlock()
			if settled && f.failure() == nil {
				continue
			}
			due = true
		case <-beat.C:
			due = true
			if beats++; beats%skewBeats == 0 {
				f.onBeat(life)
			}
		}
		f.step(life, due)
	}
}

// step makes the exchanges that are due in a mode.
func (f *fleet) step(life context.Context, due bool) {
	ctx, cancel := context.WithTimeout(life, attemptTimeout)
	defer cancel()
	f.clock.mu.Lock()
	now := f.clock.mode
	f.clock.mu.Unlock()
	var err error
	switch now {
	case joining:
		err = f.comeIn(ctx)
	case alone:
		if err = f.claim(ctx); err == nil {
			err = f.beatAlone(ctx)
		}
	case between:
		err = f.share(ctx)
	case shared:
		err = f.beatShared(ctx, due)
	}
	if errors.Is(err, errRemoved) {
		err = f.comeBack(ctx)
	}
	f.mu.Lock()
	f.failed = err
	f.mu.Unlock()
}

// failure is what went wrong in the last exchange.
func (f *fleet) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// listen notes which other servers moved, and removes those that did not for
// long. It sees to loads whose server was removed. A poll counts once in a beat, so that a database that does not answer
// for a while is not mistaken for servers that do not.
func (f *fleet) listen(ctx context.Context, state *clockState) {
	now := f.clock.elapsed()
	if _, there := state.Servers[state.Loader]; !there && state.Loader != "" {
		f.adopt(ctx, state.Loader)
	}
	for id := range f.silent {
		if _, there := state.Servers[id]; !there {
			delete(f.silent, id)
		}
	}
	for id, server := range state.Servers {
		if id == f.doc.id {
			continue
		}
		known, there := f.silent[id]
		switch {
		case !there || known.state.Beat != server.Beat:
			f.silent[id] = silence{state: server, heard: now}
		case now-known.heard < f.every:
		case known.polls+1 < deadBeats:
			f.silent[id] = silence{state: server, polls: known.polls + 1, heard: now}
		default:
			f.bury(ctx, id, server)
		}
	}
}

// look learns what the clock document says now. Those who ask at the same time
// share one answer, to a question put after they asked. It is not the whole
// where others removed this server and hand out times without it.
func (f *fleet) look(ctx context.Context) (whole bool, err error) {
	f.mu.Lock()
	call := f.next
	if call == nil {
		call = &lookCall{done: make(chan struct{})}
		f.next = call
		if !f.looking {
			f.looking = true
			go f.answer()
		}
	}
	f.mu.Unlock()
	select {
	case <-call.done:
		return call.whole, call.err
	case <-ctx.Done():
		return false, driver.Errorf(driver.CodeUnavailable, "asking for the database's clock: the time was up: %w", ctx.Err())
	}
}

// answer answers those who look, until there are none.
func (f *fleet) answer() {
	for {
		f.mu.Lock()
		call := f.next
		f.next, f.looking = nil, call != nil
		f.mu.Unlock()
		if call == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		state, err := f.doc.read(ctx)
		cancel()
		if err == nil {
			call.whole = f.learn(state)
		}
		call.err = wrap(err, "asking for the database's clock")
		close(call.done)
	}
}

// learn takes a state of the document into account, unless it is not, or no
// longer, the whole.
func (f *fleet) learn(state *clockState) bool {
	c := f.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	own, there := state.Servers[f.doc.id]
	_, unaware := state.others(f.doc.id)
	if c.mode != shared || !there || unaware {
		return false
	}
	c.mark, c.last = max(c.mark, state.Mark), max(c.last, state.Mark)
	stable := min(state.Mark, state.lowest(f.doc.id)-1)
	if own.Beat > c.beat && own.Low != 0 {
		stable = min(stable, own.Low-1) // times were taken that are not known here yet
	}
	if stable > c.stable {
		c.stable = stable
		c.broadcast()
	}
	return true
}

// now returns an instant to read at.
func (f *fleet) now(ctx context.Context) (driver.Instant, error) {
	for wait := lookPause; ; wait = min(2*wait, lookPauses) {
		looked := false
		if f.shares() {
			var err error
			if looked, err = f.look(ctx); err != nil {
				return 0, err
			}
			if !looked {
				// The next exchange finds out that this server was removed.
				pause(ctx, wait)
				continue
			}
		}
		if at, ok, err := f.clock.read(ctx, looked); ok || err != nil {
			return at, err
		}
	}
}

func (f *fleet) shares() bool {
	f.clock.mu.Lock()
	defer f.clock.mu.Unlock()
	return f.clock.mode == shared
}

// settle makes an instant stable, see driver.Engine.Settle.
func (f *fleet) settle(ctx context.Context, at driver.Instant) error {
	present, reached, err := f.clock.reach(ctx, at)
	if err == nil && !reached && f.shares() {
		// Another server's clock may be ahead of this one's.
		if _, err = f.look(ctx); err == nil {
			present, reached, err = f.clock.reach(ctx, at)
		}
	}
	if err != nil {
		return err
	}
	if !reached {
		return invalidf("%s is in the future; the store's clock says %s", at, present)
	}
	return f.wait(ctx, at)
}

// wait returns when no commit with a time at or before an instant is in
// flight, of this server or of another.
func (f *fleet) wait(ctx context.Context, at driver.Instant) error {
	pause := lookPause
	for {
		passed, own := f.clock.settled(at)
		switch {
		case passed:
			return nil
		case own:
			if err := f.clock.awaitChange(ctx, at); err != nil {
				return err
			}
			continue
		}
		if _, err := f.look(ctx); err != nil {
			return err
		}
		if passed, _ := f.clock.settled(at); passed {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, lookPauses)
	}
}

// acknowledge returns when every server knows that a commit has landed, and
// all before it: whoever reads from then on, wherever, sees it.
func (f *fleet) acknowledge(ctx context.Context, at driver.Instant) error {
	if err := f.clock.awaitTold(ctx, at); err != nil {
		return err
	}
	return f.wait(ctx, at)
}

// saw makes later commits come after an instant that was loaded.
func (f *fleet) saw(ctx context.Context, at driver.Instant) error {
	_, _, err := f.clock.reach(ctx, at)
	return err
}

// leave goes out of the fleet. A server that does not know what became of its
// commits, or did not complete what a dead one was loading, lets the others wait
// until it is taken for dead.
func (f *fleet) leave(ctx context.Context) error {
	f.stop()
	<-f.ended
	f.heirs.Wait()
	handedOut, clear := f.clock.handedOut()
	if !clear {
		return nil
	}
	return f.doc.leave(ctx, handedOut)
}
