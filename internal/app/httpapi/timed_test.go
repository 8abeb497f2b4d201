package httpapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A timed context is one of context.WithTimeout, whether somebody waits for it
// before it ends or not.
func TestTimed(t *testing.T) {
	type key struct{}
	for _, waits := range []bool{false, true} {
		for _, c := range []struct {
			name string
			do   func(end, cancelParent func())
			want error
		}{
			{"time", func(_, _ func()) { time.Sleep(time.Minute) }, context.DeadlineExceeded},
			{"time and end", func(end, _ func()) { time.Sleep(time.Minute); synctest.Wait(); end() }, context.DeadlineExceeded},
			{"end", func(end, _ func()) { end(); end(); time.Sleep(time.Minute) }, context.Canceled},
			{"parent", func(_, cancel func()) { cancel(); time.Sleep(time.Minute) }, context.Canceled},
			{"nothing", func(_, _ func()) { time.Sleep(time.Minute - 1) }, nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
					defer cancel()
					op := &operation{}
					ctx := newOpContext(parent, op, time.Now, time.Now().Add(time.Minute))
					defer ctx.end()
					var child context.Context
					if waits {
						ctx.Done()
						made, cancel := context.WithCancel(ctx)
						defer cancel()
						child = made
					}
					if until, ok := ctx.Deadline(); !ok || until != time.Now().Add(time.Minute) {
						t.Errorf("deadline %v, %v", until, ok)
					}
					if operationOf(ctx) != op || ctx.Value(key{}) != "value" || ctx.Value("nothing") != nil {
						t.Error("values are missing")
					}
					c.do(ctx.end, cancel)
					synctest.Wait()
					for range 2 { // it stays so
						if err := ctx.Err(); !errors.Is(err, c.want) {
							t.Errorf("%v, want %v", err, c.want)
						}
						closed := false
						select {
						case <-ctx.Done():
							closed = true
						default:
						}
						if closed != (c.want != nil) {
							t.Errorf("closed: %v", closed)
						}
						ctx.end()
						if c.want == nil {
							break
						}
					}
					if err := ctx.Err(); err == nil {
						t.Error("it did not end")
					}
					synctest.Wait()
					if child != nil && (child.Err() == nil || c.want != nil && !errors.Is(context.Cause(child), c.want)) {
						t.Errorf("a context that was made of it: %v, %v", child.Err(), context.Cause(child))
					}
				})
			})
		}
	}
}

// The earlier of two deadlines counts.
func TestTimedWithinTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ctx := newOpContext(parent, &operation{}, time.Now, time.Now().Add(time.Minute))
		defer ctx.end()
		if until, ok := ctx.Deadline(); !ok || until != time.Now().Add(time.Second) {
			t.Errorf("deadline %v, %v", until, ok)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A deadline is of the system's clock, whatever the server takes for the time:
// drivers compare with that before they send anything.
func TestDeadlineIsOfTheSystemsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stands := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
		ctx := newOpContext(t.Context(), &operation{}, func() time.Time { return stands }, stands.Add(time.Second))
		defer ctx.end()
		if until, ok := ctx.Deadline(); !ok || until != time.Now().Add(time.Second) {
			t.Errorf("the deadline is %v, %v", until, ok)
		}
		if err := ctx.Err(); err != nil {
			t.Error(err)
		}
	})
}

// Who waits for an operation whose processor time is over is told when that is noticed.
func TestWhoWaitsIsToldThatTheTimeIsOver(t *testing.T) {
	var passed time.Duration
	begin := time.Now()
	ctx := newOpContext(t.Context(), &operation{}, func() time.Time { return begin.Add(passed) }, begin.Add(time.Hour))
	ctx.execute(begin, time.Second, &processor{now: func() time.Duration { return passed }}, false)
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	passed = time.Second
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	<-ctx.Done()
	<-child.Done()
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// The processor time is asked for now and then; an operation has a little less for that, and
// never more.
func TestProcessorTimeIsAskedForSeldom(t *testing.T) {
	asked := 0
	begin := time.Now()
	p := processor{now: func() time.Duration { asked++; return time.Duration(asked) }}
	for i := range 100 {
		if used := p.before(begin.Add(time.Duration(i)*time.Millisecond), 20*time.Millisecond); used != time.Duration(asked) || asked != 1+i/21 {
			t.Errorf("after %d ms: asked %d times, %d", i, asked, used)
		}
	}
}
