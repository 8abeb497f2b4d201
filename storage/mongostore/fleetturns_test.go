package mongostore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// While a server loads without a break, the commits of others come between its
// loads, and so do its own, and the loads of others.
func TestLoadsTakeTurns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	loader, other := newFleetServer(t, uri, Options{beat: beatEvery}), newFleetServer(t, uri, Options{beat: beatEvery})
	until(ctx, t, loader, func(c *clock) bool { return c.mode == shared })
	var loads atomic.Int64
	loading, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for loading.Err() == nil {
			if _, err := loadAgain(ctx, loader, two(int(loads.Load()), "things")); err != nil {
				ended <- err
				return
			}
			loads.Add(1)
		}
		ended <- nil
	}()
	otherWaits := func() bool { return stateOf(ctx, t, loader).Servers[lifeOf(other)].Waits }
	for _, turn := range []struct {
		name  string
		do    func(id string) error
		waits func() bool
	}{
		{"a commit of another server", func(id string) error {
			_, err := commitAgain(ctx, other, write(id, id, 0))
			return err
		}, otherWaits},
		{"a load of another server", func(id string) error {
			vs := two(0, "things")
			vs[0].Key, vs[1].Key = id+".0", id+".1"
			_, err := loadAgain(ctx, other, vs)
			return err
		}, otherWaits},
		{"a commit of the same server", func(id string) error {
			_, err := commitAgain(ctx, loader, write(id, id, 0))
			return err
		}, func() bool {
			loader.clock.mu.Lock()
			defer loader.clock.mu.Unlock()
			return loader.clock.held > 0
		}},
	} {
		// How long it takes to ask is not counted: loads are from when it is known that
		// somebody waits. Who comes between two loads does not wait.
		const rounds, few = 5, 10
		for round, waited := 0, 0; waited < rounds; round++ {
			done := make(chan error, 1)
			go func() { done <- turn.do(fmt.Sprintf("%s %d", turn.name, round)) }()
			before := int64(-1)
			for len(done) == 0 && before < 0 {
				if turn.waits() {
					before = loads.Load()
				}
			}
			if err := <-done; err != nil {
				t.Fatalf("%s: %v", turn.name, err)
			}
			if before < 0 {
				continue
			}
			waited++
			if n := loads.Load() - before; n > few {
				t.Errorf("%s waited for %d loads", turn.name, n)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("%d loads", loads.Load())
}

// A load that waits while another server loads comes after what that one was
// loading also where it dies, and this server completes it.
func TestLoadWaitsForHeir(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	heir := newFleetServer(t, uri, Options{})
	dying := newFleetServer(t, uri, Options{})
	until(ctx, t, heir, func(c *clock) bool { return c.mode == shared })
	vs := two(0, "things")
	later := two(0, "things")[1:]
	later = append(later, two(1, "things")...)
	later[0].RecordedAt += 5
	later[0].Data = []byte(`{"a":1}`)
	loaded := make(chan error, 1)
	dieLoading(ctx, t, dying, vs, 1, func() {
		go func() {
			_, err := loadAgain(ctx, heir, later)
			loaded <- err
		}()
		until(ctx, t, heir, func(c *clock) bool { return c.loading })
	})
	if err := <-loaded; err != nil {
		t.Errorf("a load that waited: %v", err)
	}
	h, err := heir.collections["things"].readHead(ctx, vs[1].Key)
	if err != nil || h == nil || h.Number != 2 {
		t.Errorf("%s is %+v, %v", vs[1].Key, h, err)
	}
	checkLoaded(ctx, t, heir, vs[:1])
}

// A load begins when the one before it has been released, and the commits that
// waited for it have their times.
func TestLoadWaitsForItsTurn(t *testing.T) {
	tests := []struct {
		name string
		busy func(*clock)
		wait bool
	}{
		{"nothing is in the way", func(*clock) {}, false},
		{"others do not know yet that it has ended", func(c *clock) { c.claimed = true }, true},
		{"a commit has not got its time yet", func(c *clock) { c.held = 1 }, true},
		{"a load is under way", func(c *clock) { c.loading = true }, true},
	}
	for _, test := range tests {
		c := newClock(time.Now, func() time.Duration { return 0 }, 1)
		f := newFleet(nil, c, beatEvery)
		c.mode = alone
		test.busy(c)
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := f.exclude(ended); (err != nil) != test.wait {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
