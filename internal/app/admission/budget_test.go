package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const (
	mb   = 1 << 20
	free = 16 << 10
)

func TestBudget(t *testing.T) {
	m := NewBudget(10*mb, free)
	a, b, c := m.Hold("a"), m.Hold("a"), m.Hold("b")
	steps := []struct {
		hold *Hold
		n    int64
		err  error
		held int64
	}{
		{a, free, nil, 0},
		{a, 3 * mb, nil, 3 * mb},
		{b, 2*mb + free, nil, 5 * mb},
		{b, 1, ErrSpent, 5 * mb}, // of the client's half
		{c, 5*mb + free + 1, ErrSpent, 5 * mb},
		{c, 5*mb + free, nil, 10 * mb},
	}
	for i, step := range steps {
		if err := step.hold.Grow(step.n); !errors.Is(err, step.err) || m.Held() != step.held {
			t.Errorf("step %d: %v, %d bytes are held; want %v, %d", i, err, m.Held(), step.err, step.held)
		}
	}
	a.Set(mb + free)
	if m.Held() != 8*mb {
		t.Errorf("%d bytes are held", m.Held())
	}
	a.Set(20 * mb) // whether there is room or not
	if err := m.Hold("d").Grow(free + 1); m.Held() < 20*mb || !errors.Is(err, ErrSpent) {
		t.Errorf("%d bytes are held, %v", m.Held(), err)
	}
	for _, h := range []*Hold{a, b, c} {
		h.Set(0)
	}
	if m.Held() != 0 || len(m.held) != 0 {
		t.Errorf("%d bytes are held, by %v", m.Held(), m.held)
	}
}

func TestBudgetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewBudget(2*mb, free)
		a, b := m.Hold("a"), m.Hold("b")
		for _, h := range []*Hold{a, b} {
			if err := h.Grow(mb + free); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := m.Hold("c").GrowWait(t.Context(), mb, time.Second); !errors.Is(err, ErrSpent) || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := m.Hold("c").GrowWait(ctx, mb, time.Second); !errors.Is(err, ErrSpent) || ctx.Err() == nil {
			t.Error(err)
		}
		got := make(chan error)
		go func() { got <- m.Hold("c").GrowWait(t.Context(), mb, time.Second) }()
		synctest.Wait()
		a.Set(mb) // too little
		synctest.Wait()
		b.Set(0)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
