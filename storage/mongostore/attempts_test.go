package mongostore

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A write whose attempts have no answer ends, and holds up the others until then
// only as long as one of them may still be carried out.
func TestDoubtEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		answer func(update int64) mongotest.Answer
		err    string // empty: it succeeds
	}{
		{"never answered", func(int64) mongotest.Answer { return mongotest.Stall() }, "nothing was"},
		{"cut each time", func(int64) mongotest.Answer { return mongotest.CutBefore() }, "nothing was"},
		{"not answered for some time", func(n int64) mongotest.Answer {
			if n <= 3 {
				return mongotest.Stall()
			}
			return mongotest.Pass()
		}, ""},
		{"refused after one", func(n int64) mongotest.Answer {
			if n == 1 {
				return mongotest.CutBefore()
			}
			return mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not any more"))
		}, "not any more"},
		{"refused after two", func(n int64) mongotest.Answer {
			if n <= 2 {
				return mongotest.CutBefore()
			}
			return mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not any more"))
		}, "not any more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, behind, beside := pair(ctx, t, Options{})
			if _, err := commitAgain(ctx, behind, write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			var updates atomic.Int64
			reached := make(chan struct{})
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if !of("update")(c) {
					return mongotest.Pass()
				}
				n := updates.Add(1)
				if n == 1 {
					close(reached)
				}
				return test.answer(n)
			})
			ended := make(chan error, 1)
			go func() {
				_, err := driver.CommitOne(ctx, behind, write("a", "2", 1))
				// Where the machine is slow, it may end for that.
				for tries := 1; tries < 5 && err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)); tries++ {
					_, err = driver.CommitOne(ctx, behind, write("a", "2", 1))
				}
				ended <- err
			}()
			await(ctx, t, reached)
			if _, err := commitAgain(ctx, beside, write("b", "b", 0)); err != nil {
				t.Errorf("another server's commit: %v", err)
			}
			err := <-ended
			if ctx.Err() != nil || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("it ended with %v; want %q", err, test.err)
			}
			behind.clock.mu.Lock()
			flights := len(behind.clock.flights)
			behind.clock.mu.Unlock()
			if flights != 0 {
				t.Errorf("%d attempts are in flight at the end", flights)
			}
			proxy.Set(nil)
			v, err := commitAgain(ctx, behind, write("a", "2", 1))
			if err != nil || v.Number != 2 {
				t.Fatalf("the same again: %v, %v", v, err)
			}
		})
	}
}
