package admission

import (
	"context"
	"errors"
	"sync"
	"time"
)

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
