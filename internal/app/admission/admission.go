// Package admission decides which operations are executed now, and how much memory
// all requests together may hold.
//
// Invariants:
//
//   - A [Gate] has lanes: operations that are known to be short do not wait behind those
//     that take long, however many of these there are, and those that write, and wait for
//     the disk, not behind either.
//   - Where several wait for a place, the client that has used the least gets it.
//   - A [Budget] never grants more than its total, and never more than half of it to one
//     client.
//   - It knows no HTTP and no GraphQL: clients and operations are names.
package admission

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// errBusy is the error of a [Gate] where no place got free in time.
var errBusy = errors.New("no place among the operations got free in time")

const (
	// remembered is of how many operations it is remembered how long they took, for any
	// client, and as many for each of them, in so many shards.
	remembered = 5_000
	shards     = 32
	// halfLife is after how long what a client has used counts half.
	halfLife = 10 * time.Second
	// muchUsed is how much execution a client may have used, so that what is not known
	// of it still counts as short.
	muchUsed = time.Second
)

// Config says how many operations are executed at a time.
type Config struct {
	Fast  int // operations that are read, or known or expected to be short; of those that may be long, as many more
	Slow  int // others
	Write int // operations that write, which wait for the disk
	// PerClient is how many operations that do not write are executed at a time for one
	// client while another one is active; 0: any number. With fewer than there are
	// processors, one of these is soon free for the others. Where only slow ones are
	// executed, one more may be that is not slow: it would wait longer than it takes.
	PerClient int
	// PerClientWrite is the same of operations that write: enough that they are committed
	// together, and few enough that another client's is soon among them.
	PerClientWrite int
	Long           time.Duration // from how long on an operation is slow
	Wait           time.Duration // for a place in the fast lane
	// WaitSlow is how long an operation waits for a place in the slow lane, or to write.
	WaitSlow time.Duration
	Now      func() time.Time
}

// Gate lets operations begin: a queue with lanes, in which the place that gets free
// goes to the client that has used the least (least attained service, as in multilevel
// feedback queues: Corbató et al., "An Experimental Time-Sharing System", 1962). Which
// lane an operation takes follows from how long it took when it was executed last.
type Gate struct {
	cfg  Config
	seed maphash.Seed

	mu       sync.Mutex
	inFlight int      // operations that have a place
	recent   [2]visit // the last ones of two different clients, the later one first
	lanes    [4]lane
	clients  map[string]*client
	// How long operations took, see observe: for any client, and for clients in the shard of
	// each, so that one who sends many makes only those of few others forgotten.
	times  times
	shards [shards]times
}

type times = *simplelru.LRU[uint64, time.Duration]

const (
	fast = iota
	slow
	write
	lists // may be long, but are known to be short: with other variables they may not be
)

// visit is when a client last asked for a place.
type visit struct {
	client *client
	at     time.Time
}

// lane is a number of places, and the operations that wait for one.
type lane struct {
	free    int
	waiting []*waiter // in the order of their arrival
}

type waiter struct {
	client  *client
	granted chan struct{} // is closed when the waiter has a place
}

// client is a client that has, or lately had, an operation.
type client struct {
	key    uint64    // what its name hashes to
	used   float64   // nanoseconds of execution, halved every halfLife
	since  time.Time // that used is as of
	refs   int       // operations that wait or are executed
	reads  int       // operations that are executed and do not write
	slow   int       // of these, in the slow lane
	writes int       // operations that are executed and write
}

// NewGate returns a gate. Places are at least one in each lane.
func NewGate(cfg Config) *Gate {
	g := &Gate{cfg: cfg, seed: maphash.MakeSeed(), clients: map[string]*client{}}
	for i, places := range [...]int{fast: cfg.Fast, slow: cfg.Slow, write: cfg.Write, lists: cfg.Fast} {
		g.lanes[i].free = max(places, 1)
	}
	g.times = newTimes(remembered)
	for i := range g.shards {
		g.shards[i] = newTimes(remembered / shards)
	}
	return g
}

func newTimes(size int) times {
	t, err := simplelru.NewLRU[uint64, time.Duration](size, nil)
	if err != nil {
		panic(err) // only for a size below one
	}
	return t
}

// shard has the times of a client's operations.
func (g *Gate) shard(c *client) times { return g.shards[c.key%shards] }

// Place is a place among the operations that are executed. Its methods are called by
// one goroutine at a time.
type Place struct {
	gate   *Gate
	client *client
	lane   int
	began  time.Time     // when the place was taken
	used   time.Duration // in the lanes before
	key    uint64        // of the operation; 0: not known yet
}

// Enter waits for a place for a client's request, whose operation is not known yet; long if
// reading it takes long. The error is errBusy or the context's.
func (g *Gate) Enter(ctx context.Context, name string, long bool) (*Place, error) {
	return g.enter(ctx, name, long, true)
}

// EnterUnasked is Enter for what a client has not asked for now, such as an event: it
// takes no share of others as one that is active does.
func (g *Gate) EnterUnasked(ctx context.Context, name string) (*Place, error) {
	return g.enter(ctx, name, false, false)
}

func (g *Gate) enter(ctx context.Context, name string, long, asked bool) (*Place, error) {
	g.mu.Lock()
	c := g.clients[name]
	if c == nil {
		g.evictIdle()
		c = &client{key: maphash.String(g.seed, name), since: g.cfg.Now()}
		g.clients[name] = c
	}
	c.refs++
	if asked {
		g.visited(c, g.cfg.Now())
	}
	p := &Place{gate: g, client: c}
	if long {
		p.lane = slow
	}
	if err := p.take(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Began is when the place was taken, in the lane that it is in.
func (p *Place) Began() time.Time { return p.began }

// ReadFirstTime is called when the operation's text is one that was not read before. The place
// moves to the slow lane if its client has used much, and is lost with an error.
func (p *Place) ReadFirstTime(ctx context.Context) error {
	p.gate.mu.Lock()
	used := p.client.usedAt(p.gate.cfg.Now())
	p.gate.mu.Unlock()
	if used > float64(muchUsed) {
		return p.move(ctx, slow)
	}
	return nil
}

// move takes a place in another lane instead.
func (p *Place) move(ctx context.Context, to int) error {
	if p.lane == to {
		return nil
	}
	p.gate.mu.Lock()
	p.release()
	p.lane = to
	return p.take(ctx)
}

// Operation is called when the operation of the place is known: its name and text, which
// clients choose. The place moves to the slow lane if the operation took long before, or, the
// first time, if it may take long or its client has used much. One that writes moves to the
// lane for that unless it takes ten times as long. The place is lost with an error.
func (p *Place) Operation(ctx context.Context, name, text string, mayBeLong, writes bool) error {
	g := p.gate
	p.key = maphash.String(g.seed, text) + 3*maphash.String(g.seed, name)
	long := g.cfg.Long
	to := fast
	switch {
	case writes:
		to, long = write, 10*long
	case mayBeLong:
		to = lists
	}
	g.mu.Lock()
	took, known := g.shard(p.client).Get(p.key + 5*p.client.key)
	if !known {
		took, known = g.times.Get(p.key)
	}
	if !known && (mayBeLong && !writes || p.client.usedAt(g.cfg.Now()) > float64(muchUsed)) {
		took = long
	}
	g.mu.Unlock()
	if took >= long || p.lane == slow {
		to = slow
	}
	return p.move(ctx, to)
}

// Used is for how long the place was taken, in all lanes, without waiting. It is called after
// Leave.
func (p *Place) Used() time.Duration { return p.used }

// Leave gives the place back, and notes how long the operation took. completed is false for
// one that was cancelled, and may take longer.
func (p *Place) Leave(completed bool) {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if took := p.release(); completed || took >= g.cfg.Long {
		// What the operation is known to take is charged: the rest it has waited for others.
		p.client.used = max(p.client.used-float64(took-g.observe(p, took)), 0)
	}
	p.client.refs--
}

// release gives the place back to its lane, and returns how long it was taken, which is
// what the client has used.
func (p *Place) release() time.Duration {
	now := p.gate.cfg.Now()
	took := now.Sub(p.began)
	p.used += took
	p.client.used = p.client.usedAt(now) + float64(took)
	p.gate.vacate(p.client, p.lane, now)
	return took
}

// active is for how long after its last request a client counts as active.
const active = time.Second

// visited notes that a client asks for a place.
func (g *Gate) visited(c *client, now time.Time) {
	if g.recent[0].client != c {
		g.recent[1] = g.recent[0]
	}
	g.recent[0] = visit{c, now}
}

// mayTake reports whether a client may have one more place of a lane, if there is one.
func (g *Gate) mayTake(c *client, lane int, now time.Time) bool {
	most, has := g.cfg.PerClient, c.reads
	if lane == write {
		most, has = g.cfg.PerClientWrite, c.writes
	}
	if most == 0 || has < most || (lane == fast || lane == lists) && c.reads == c.slow {
		return true
	}
	return !slices.ContainsFunc(g.recent[:], func(v visit) bool {
		return v.client != nil && v.client != c && now.Sub(v.at) < active
	})
}

// occupy takes a free place of a lane for a client.
func (g *Gate) occupy(c *client, lane int) {
	g.lanes[lane].free--
	g.inFlight++
	c.count(lane, 1)
}

// count adds to the client's operations of a lane.
func (c *client) count(lane, n int) {
	if lane == write {
		c.writes += n
	} else {
		c.reads += n
	}
	if lane == slow {
		c.slow += n
	}
}

// vacate gives a client's place of a lane to the next that waits, of any lane: the client
// may have been at its bound.
func (g *Gate) vacate(c *client, lane int, now time.Time) {
	g.lanes[lane].free++
	g.inFlight--
	c.count(lane, -1)
	g.admitNext(now)
}

// observe notes the time that an operation took. A shorter time than the last replaces it,
// since it was not waiting for others; a longer one raises it to twice that, or to a quarter
// of its own. It returns what is noted for the client.
func (g *Gate) observe(p *Place, took time.Duration) time.Duration {
	if p.key == 0 {
		return took
	}
	note := func(in times, key uint64) time.Duration {
		noted := took
		if known, ok := in.Get(key); ok && took > known {
			noted = min(took, max(2*known, took/4))
		}
		in.Add(key, noted)
		return noted
	}
	note(g.times, p.key)
	return note(g.shard(p.client), p.key+5*p.client.key)
}

// usedAt brings what a client has used up to date and returns it.
func (c *client) usedAt(now time.Time) float64 {
	if now.Equal(c.since) {
		return c.used
	}
	c.used *= math.Exp2(-float64(now.Sub(c.since)) / float64(halfLife))
	c.since = now
	return c.used
}

// evictAt is the number of clients from which on idle ones are evicted.
const evictAt = 10_000

// evictIdle evicts clients without operations where there are many clients.
func (g *Gate) evictIdle() {
	if len(g.clients) >= evictAt {
		maps.DeleteFunc(g.clients, func(_ string, c *client) bool { return c.refs == 0 })
	}
}

// take waits for a place in the lane. With an error, there is no place any more. The caller
// holds the lock, which take releases.
func (p *Place) take(ctx context.Context) error {
	g := p.gate
	l := &g.lanes[p.lane]
	if now := g.cfg.Now(); l.free > 0 && g.mayTake(p.client, p.lane, now) {
		g.occupy(p.client, p.lane)
		g.mu.Unlock()
		p.began = now
		return nil
	}
	w := &waiter{client: p.client, granted: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	g.mu.Unlock()

	wait := g.cfg.Wait
	if p.lane == slow || p.lane == write {
		wait = g.cfg.WaitSlow
	}
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-w.granted:
		p.began = g.cfg.Now()
		return nil
	case <-timed.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else { // it was granted at the same time
		g.vacate(p.client, p.lane, g.cfg.Now())
	}
	p.client.refs--
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errBusy
}

// admitNext gives free places to those that wait for them: first to the client that has used
// the least.
func (g *Gate) admitNext(now time.Time) {
	for i := range g.lanes {
		l := &g.lanes[i]
		for l.free > 0 && len(l.waiting) > 0 {
			next := -1
			for k, w := range l.waiting {
				if (next < 0 || w.client.usedAt(now) < l.waiting[next].client.usedAt(now)) && g.mayTake(w.client, i, now) {
					next = k
				}
			}
			if next < 0 {
				break
			}
			g.occupy(l.waiting[next].client, i)
			close(l.waiting[next].granted)
			l.waiting = slices.Delete(l.waiting, next, next+1)
		}
	}
}

// InFlight returns the number of operations that have a place.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// ErrSpent is the error where all clients, or this one, hold as much of a budget as they
// may.
var ErrSpent = errors.New("the budget is spent")

// share is the part that one client may hold of what the others leave: one in so many. So there
// is always something left for one more (dynamic thresholds: Choudhury and Hahne, 1998).
const share = 2

// Budget is a number of things, such as bytes of memory, that all requests share.
type Budget struct {
	total int64
	each  int64 // of a hold, that are not counted

	mu   sync.Mutex
	free int64
	held map[string]int64 // by client
}

// NewBudget returns a budget of a total. What a hold has up to each is not counted: where
// most requests need no more, they need not look at what they share.
func NewBudget(total, each int64) *Budget {
	return &Budget{total: total, each: each, free: total, held: map[string]int64{}}
}

// Held is how much is held.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}

// Hold is what one request holds of a budget. It is used by one goroutine at a time,
// except for Grow, which several may call.
type Hold struct {
	budget *Budget
	client string
	mu     sync.Mutex
	used   int64 // with what is not counted
}

// Hold returns a hold of nothing, of a client.
func (b *Budget) Hold(client string) *Hold { return &Hold{budget: b, client: client} }

// Grow holds n more, or returns ErrSpent at once.
func (h *Hold) Grow(n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.budget.take(h.client, h.budget.counted(h.used+n)-h.budget.counted(h.used)) {
		return ErrSpent
	}
	h.used += n
	return nil
}

// lookEvery is after how long who waits looks again. To wake all of them whenever something
// is given back would cost too much where many wait, such as for a client's own share.
const lookEvery = 20 * time.Millisecond

// GrowWait is Grow that waits until there is room, for at most so long, or until the
// context ends.
func (h *Hold) GrowWait(ctx context.Context, n int64, most time.Duration) error {
	for waited := time.Duration(0); ; waited += lookEvery {
		err := h.Grow(n)
		if err == nil || waited >= most {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lookEvery):
		}
	}
}

// Set holds n from now on, also where there is no room for them: they are there already.
func (h *Hold) Set(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.budget.give(h.client, h.budget.counted(h.used)-h.budget.counted(n))
	h.used = n
}

// counted is how much a hold of n takes of the budget.
func (b *Budget) counted(n int64) int64 { return max(n-b.each, 0) }

func (b *Budget) take(client string, n int64) bool {
	if n == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.free || b.held[client]+n > max((b.free+b.held[client])/share, 1) {
		return false
	}
	b.free -= n
	b.held[client] += n
	return true
}

// give gives n back; less than 0: it takes them, whether they are there or not.
func (b *Budget) give(client string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.held[client] -= n; b.held[client] == 0 {
		delete(b.held, client)
	}
}
