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
	a, b, c, d := m.Hold("a"), m.Hold("a"), m.Hold("b"), m.Hold("c")
	steps := []struct {
		hold *Hold
		n    int64
		err  error
		held int64
	}{
		{a, free, nil, 0},
		{a, 3 * mb, nil, 3 * mb},
		{b, 2*mb + free, nil, 5 * mb},
		{b, 1, ErrSpent, 5 * mb},                 // of the client's half
		{c, 5*mb/2 + free + 1, ErrSpent, 5 * mb}, // half of what is left
		{c, 5*mb/2 + free, nil, 15 * mb / 2},
		{a, 1, ErrSpent, 15 * mb / 2},
		{d, 5*mb/4 + free, nil, 35 * mb / 4}, // who comes later finds something
	}
	for i, step := range steps {
		if err := step.hold.Grow(step.n); !errors.Is(err, step.err) || m.Held() != step.held {
			t.Errorf("step %d: %v, %d bytes are held; want %v, %d", i, err, m.Held(), step.err, step.held)
		}
	}
	d.Set(0)
	a.Set(mb + free)
	if m.Held() != 11*mb/2 {
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
		if err := errors.Join(a.Grow(mb+free), b.Grow(mb/2+free)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := m.Hold("c").GrowWait(t.Context(), mb/2, time.Second); !errors.Is(err, ErrSpent) || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := m.Hold("c").GrowWait(ctx, mb/2, time.Second); !errors.Is(err, ErrSpent) || ctx.Err() == nil {
			t.Error(err)
		}
		got := make(chan error)
		go func() { got <- m.Hold("c").GrowWait(t.Context(), mb/2, time.Second) }()
		synctest.Wait()
		a.Set(mb) // too little
		synctest.Wait()
		b.Set(0)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
