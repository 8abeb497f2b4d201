package drivertest

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/asof/asof/storage/driver"
)

// arrivals are the versions of a model in the order in which they arrived. A
// position is the model's name and how many came before it.
type arrivals struct {
	store string // tells the model from others
	list  []driver.LogPosition
	moved chan struct{} // closed, and replaced, when something arrives or the model closes
}

func newArrivals() arrivals {
	return arrivals{store: fmt.Sprintf("%016x", rand.Uint64()), moved: make(chan struct{})}
}

func (a *arrivals) move() {
	close(a.moved)
	a.moved = make(chan struct{})
}

func (a *arrivals) position(n int) driver.WatchPosition {
	return driver.WatchPosition(hex.EncodeToString(fmt.Appendf(nil, "%s%016x", a.store, n)))
}

func (a *arrivals) place(p driver.WatchPosition) (n int, err error) {
	text, err := hex.DecodeString(string(p))
	const digits = 16
	if err != nil || len(text) != 2*digits {
		return 0, driver.Errorf(driver.CodeInvalid, "%q is no position", p)
	}
	if !strings.HasPrefix(string(text), a.store) {
		return 0, driver.Errorf(driver.CodeInvalid, "the position is of another store")
	}
	if _, err := fmt.Sscanf(string(text[digits:]), "%x", &n); err != nil || n < 0 || n > len(a.list) {
		return 0, driver.Errorf(driver.CodeInvalid, "the position is ahead of the store")
	}
	return n, nil
}

func (m *model) Watch(ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
	return func(yield func(driver.Arrival, error) bool) {
		n, err := m.beginWatch(ctx, q)
		if err != nil {
			yield(driver.Arrival{}, err)
			return
		}
		for version := (*driver.Version)(nil); ; {
			if !yield(driver.Arrival{Position: m.arrivals.position(n), Version: version}, nil) {
				return
			}
			if version, n, err = m.nextArrival(ctx, q, n); err != nil {
				yield(driver.Arrival{}, err)
				return
			}
		}
	}
}

func (m *model) beginWatch(ctx context.Context, q *driver.WatchQuery) (int, error) {
	defer m.mu.Unlock()
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	for _, name := range q.Collections {
		if err := m.knows(name); err != nil {
			return 0, err
		}
	}
	switch {
	case q.FromNow && q.After != "":
		return 0, driver.Errorf(driver.CodeInvalid, "a watch begins behind a position or from now")
	case q.FromNow:
		return len(m.arrivals.list), nil
	case q.After == "":
		return 0, nil
	}
	return m.arrivals.place(q.After)
}

// nextArrival waits for the next version behind a place.
func (m *model) nextArrival(ctx context.Context, q *driver.WatchQuery, n int) (*driver.Version, int, error) {
	for {
		if err := m.enter(ctx); err != nil {
			m.mu.Unlock()
			return nil, n, err
		}
		for ; n < len(m.arrivals.list); n++ {
			if p := m.arrivals.list[n]; len(q.Collections) == 0 || slices.Contains(q.Collections, p.Collection) {
				v := m.documents[p.Collection][p.Key][p.Number-1]
				m.mu.Unlock()
				return v, n + 1, nil
			}
		}
		moved := m.arrivals.moved
		m.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, n, driver.Errorf(driver.CodeUnavailable, "the watch ended: %w", ctx.Err())
		}
	}
}
