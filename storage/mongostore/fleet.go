package mongostore

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
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
//     others could, is removed. It sends no commit any more well before that,
//     nor reads at an instant of its own (see lease).
//
// What is assumed is that the database does not carry out a command later than
// deadBeats-leaseBeats beats after its server has given it up. Until then it may
// be on its way; the connection is reset when it is given up (see dialer), so that
// what has not left this machine never does.
//
// One goroutine makes all changes of the document, one after the other.
type fleet struct {
	clock  *clock
	doc    *clockDocument
	every  time.Duration         // between two beats
	onBeat func(context.Context) // called now and then
	// complete completes the loads of servers that are not there any more, in the
	// life in which this one excludes others.
	complete func(ctx context.Context, life string) error

	life   context.Context
	stop   context.CancelFunc
	heirs  sync.WaitGroup
	checks sync.WaitGroup // onBeat
	kicked chan struct{}
	ended  chan struct{}
	silent map[string]silence
	ahead  driver.Instant // how far the mark was ahead of this server's clock
	// rejoining: it is not certain that this server came in again.
	rejoining bool
	// While another server loads: not before again, a time of elapsed, is the
	// document asked whether it still does; waits: it says that this one waits.
	// yield is until when this one lets those commit that waited for its load.
	again, yield time.Duration
	waits        bool
	looks        *patience // with what only looks

	mu       sync.Mutex
	looking  bool
	next     *lookCall
	checking bool  // onBeat is running
	failed   error // of the last exchange
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
	leaseBeats = 3 // a server sends nothing any more that has a time
	aheadBeats = 4 // as many does one that is alone note instants ahead
	deadBeats  = 6 // a server is taken for dead
	lookPause  = time.Millisecond
	lookPauses = 50 * time.Millisecond
	// patienceBeats is how long an exchange may take at first, before it is
	// repeated: less than a lease.
	patienceBeats = 2
	// leastShare is the part of a lease, one in so many, that must be left when a
	// commit takes off, so that there is time for it.
	leastShare = 6
	// joinPolls is how often a beat a server that comes in looks at the others, and
	// loadPolls one that waits for a load to end.
	joinPolls = 5
	loadPolls = 20
	// aheadDecay is the part of ahead that is forgotten in a beat.
	aheadDecay = 8
	// noticed is the part of a beat, one in so many, by which an exchange is slow enough
	// for others to have moved their clocks on before it arrives.
	noticed = 8
	// skewBeats is how many beats are between two comparisons of clocks.
	skewBeats = 10
)

func newFleet(meta *mongo.Collection, c *clock, every time.Duration) *fleet {
	if every == 0 {
		every = beatEvery
	}
	with := func(leased func() bool) *patience {
		return &patience{least: min(attemptTimeout, patienceBeats*every), most: attemptTimeout, elapsed: c.elapsed, leased: leased}
	}
	f := &fleet{
		clock: c, doc: &clockDocument{meta: meta, id: rand.Text(), changes: with(c.isLeased), reads: with(c.isLeased)}, every: every,
		looks:  with(func() bool { return false }), // nothing is lost by waiting
		onBeat: func(context.Context) {}, complete: func(context.Context, string) error { return nil },
		kicked: make(chan struct{}, 1), ended: make(chan struct{}), silent: make(map[string]silence),
	}
	c.kick, c.life, c.term, c.grace, c.quick = f.kick, f.doc.id, leaseBeats*every, slowBeats*every, c.elapsed()
	return f
}

// late is how long the database may still carry out a command after its server has
// given it up.
func (f *fleet) late() time.Duration { return (deadBeats - leaseBeats) * f.every }

func (f *fleet) kick() {
	select {
	case f.kicked <- struct{}{}:
	default: // it is kicked already
	}
}

// start comes in, and returns when instants can be handed out.
func (f *fleet) start(ctx, life context.Context) error {
	if err := persist(ctx, func() error { return f.doc.join(ctx, f.clock.last, false) }); err != nil {
		return err
	}
	f.life, f.stop = context.WithCancel(life)
	go f.run(f.life)
	c := f.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mode != alone && c.mode != shared {
		if err := c.refusal(); err != nil {
			return err
		}
		if err := c.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// owes reports whether loads of servers that are not there any more are being
// completed.
func (f *fleet) owes() bool {
	f.clock.mu.Lock()
	defer f.clock.mu.Unlock()
	return f.clock.debts > 0
}

// paid waits until they are completed.
func (f *fleet) paid(ctx context.Context) error {
	c := f.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.debts > 0 {
		if err := c.await(ctx); err != nil {
			return err
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
	again := time.NewTimer(f.every)
	defer again.Stop()
	beats := 0
	for {
		due := false
		select {
		case <-life.Done():
			return
		case <-f.kicked:
		case <-again.C:
		case <-poll.C:
			f.clock.mu.Lock()
			settled := f.clock.mode == alone || f.clock.mode == shared
			f.clock.mu.Unlock()
			if err := f.failure(); settled && (err == nil || errors.Is(err, errUnmet)) {
				continue
			}
			due = true
		case <-beat.C:
			due = true
			if beats++; beats%skewBeats == 0 {
				f.check(life)
			}
		}
		f.step(life, due)
		if errors.Is(f.failure(), errUnmet) {
			again.Reset(f.every / loadPolls)
		}
	}
}

// check calls onBeat beside the beats, which do not wait for it.
func (f *fleet) check(life context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.checking {
		return
	}
	f.checking = true
	f.checks.Go(func() {
		f.onBeat(life)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.checking = false
	})
}

// persist repeats what failed for want of an answer, until the context ends; where the
// connection broke, a few times.
func persist(ctx context.Context, do func() error) error {
	for {
		err := insist(ctx, do)
		if err == nil || ctx.Err() != nil || !mongo.IsTimeout(err) {
			return err
		}
		pause(ctx, firstPause)
	}
}

// exchange changes the document, see clockDocument. One that is made renews the lease.
func (f *fleet) exchange(ctx context.Context, set bson.D, change bson.D, condition ...bson.E) (*clockState, error) {
	var began moment
	before, err := f.doc.exchange(ctx, func() { began = f.clock.moment() }, set, change, condition...)
	if err == nil {
		f.clock.confirm(began)
	}
	if err == nil || ctx.Err() == nil && unanswered(err) {
		f.clock.noteSlow(f.clock.elapsed()-began.elapsed, err == nil)
	}
	return before, err
}

// step makes the exchanges that are due in a mode. Each command is bounded for
// itself: a database that is slow is to be heard at last.
func (f *fleet) step(life context.Context, due bool) {
	f.clock.mu.Lock()
	now := f.clock.mode
	f.clock.mu.Unlock()
	var err error
	switch now {
	case joining:
		if f.rejoining {
			err = f.comeBack(life)
		}
		if err == nil {
			err = f.comeIn(life)
		}
	case alone:
		if err = f.claim(life); err == nil {
			err = f.beatAlone(life)
		}
	case between:
		err = f.share(life)
	case shared:
		err = f.beatShared(life, due)
	}
	if errors.Is(err, errRemoved) {
		err = f.comeBack(life)
	}
	f.clock.noteFailure(err, due)
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

// leaveTimeout is how long a server tries to say that it leaves. The others find out
// without that, and a supervisor that ends a program kills it after a while, often 10 s.
const leaveTimeout = 5 * time.Second

// leave goes out of the fleet. A server that does not know what became of its
// commits, or did not complete what a dead one was loading, lets the others wait
// until it is taken for dead.
func (f *fleet) leave(ctx context.Context) error {
	f.stop()
	<-f.ended
	f.heirs.Wait()
	f.checks.Wait()
	handedOut, clear := f.clock.handedOut()
	if !clear {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return persist(ctx, func() error { return f.doc.leave(ctx, handedOut) })
}
