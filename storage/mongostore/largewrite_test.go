package mongostore

import (
	"context"
	"fmt"
	"testing"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A large document that is longer on its way than a lease lasts is written as long
// as the lease is renewed.
func TestLargeWriteOutlastsLease(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{})
	id := lifeOf(behind)
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !of("update")(c) {
			return mongotest.Pass()
		}
		inFlight := func() int {
			behind.clock.mu.Lock()
			defer behind.clock.mu.Unlock()
			return len(behind.clock.flights)
		}
		attempts, first := inFlight(), int64(0)
		for ctx.Err() == nil {
			state, err := beside.fleet.doc.read(ctx)
			if err != nil {
				continue
			}
			if first == 0 {
				first = state.Servers[id].Beat
			}
			if state.Servers[id].Beat >= first+2*leaseBeats {
				break
			}
		}
		const enough = 3 // the pauses between later ones are longer than what is waited for
		if inFlight() != attempts || attempts > enough {
			return mongotest.CutBefore() // it was given up on its way
		}
		return mongotest.Pass()
	})
	w := write("a", "1", 0)
	w.Data = fmt.Appendf(nil, `{"text":"%0*d"}`, largeWrite, 0)
	if _, err := commitAgain(ctx, behind, w); err != nil {
		t.Fatal(err)
	}
	if _, err := commitAgain(ctx, behind, write("a", "2", 1)); err != nil {
		t.Error(err)
	}
}
