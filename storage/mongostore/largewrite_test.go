package mongostore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A write that is longer on its way than it may live is tried again, and may take longer
// each time.
func TestSlowWrite(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]int{"a small one": 0, "a large one": 1_000_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, behind, beside := pair(ctx, t, Options{})
			slow := 3 * behind.clock.lifeOf(large, 0)
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("update")(c) {
					pause(ctx, slow)
				}
				return mongotest.Pass()
			})
			defer proxy.Set(nil)
			w := write("a", "1", 0)
			w.Data = fmt.Appendf(nil, `{"text":"%0*d"}`, large, 0)
			if _, err := driver.CommitOne(ctx, behind, w); err != nil {
				t.Fatal(err)
			}
			if _, err := driver.CommitOne(ctx, beside, write("a", "2", 1)); err != nil {
				t.Error(err)
			}
			checkAll(t, beside)
		})
	}
}

// How long a write may live grows with its size and with the attempts, up to a bound.
func TestLives(t *testing.T) {
	c := &clock{timing: usual}
	for _, test := range []struct {
		bytes, attempt int
		want           time.Duration
	}{
		{0, 0, time.Second},
		{smallWrite, 0, time.Second},
		{smallWrite + lifeBytes, 0, 2 * time.Second},
		{0, 2, 4 * time.Second},
		{0, 9, longestLife},
		{smallWrite + 14*lifeBytes, 3, 60 * time.Second},
	} {
		if got := c.lifeOf(test.bytes, test.attempt); got != test.want {
			t.Errorf("%d bytes, attempt %d: %v, want %v", test.bytes, test.attempt, got, test.want)
		}
	}
}
