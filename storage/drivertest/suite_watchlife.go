package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// How watches live: they sleep and wake up, are refused, end, are slow, and many.

// A watch that sleeps is told of each commit, one by one.
func (s *suite) testWatchWakes(t *testing.T) {
	f := s.fixture(t)
	var watchers []*watcher
	for range 3 {
		watchers = append(watchers, f.watch(driver.WatchQuery{FromNow: true}))
	}
	for i := range 20 {
		var v *driver.Version
		if i%4 == 3 {
			load := loaded(fmt.Sprint("load", i), driver.Instant(i+1), `{}`)
			load.Number = 1
			f.load(load)
			v = &load
		} else {
			v = f.put("a", `{}`)
		}
		for _, w := range watchers {
			w.sees(v)
		}
	}
	for _, w := range watchers {
		if n := len(w.told()); n != 20 {
			t.Errorf("%d arrivals, want 20", n)
		}
	}
}

func (s *suite) testWatchRefuses(t *testing.T) {
	f, stranger := s.fixture(t), s.fixture(t)
	for _, one := range []*fixture{f, stranger} {
		for range 3 {
			one.put("a", `{}`)
		}
	}
	first := func(q driver.WatchQuery) (p driver.WatchPosition, err error) {
		for a, e := range f.engine.Watch(f.ctx, &q) {
			p, err = a.Position, e
			break
		}
		return p, err
	}
	theirs := stranger.watch(driver.WatchQuery{FromNow: true}).positions[0]
	ours, err := first(driver.WatchQuery{FromNow: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]driver.WatchQuery{
		"another store's position": {After: theirs},
		"no position":              {After: "nonsense"},
		"half a position":          {After: ours[:len(ours)/2]},
		"a longer position":        {After: ours + "00000000"},
		"a character more":         {After: ours + "0"},
		"a line's end":             {After: ours + "\n"},
		"a position and from now":  {After: ours, FromNow: true},
		"an unknown collection":    {Collections: []string{collection, "unknown"}},
	} {
		p, err := first(q)
		f.wantCode(name, err, driver.CodeInvalid)
		if p != "" {
			t.Errorf("%s: the position %q", name, p)
		}
	}
	for range 2 {
		if _, err := first(driver.WatchQuery{After: ours}); err != nil {
			t.Errorf("its own position: %v", err)
		}
		if _, err := first(driver.WatchQuery{After: theirs}); driver.CodeOf(err) != driver.CodeInvalid {
			t.Errorf("another store's position: %v", err)
		}
		f.reopen()
	}
}

func (s *suite) testWatchContext(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{}`)
	w := f.watch(driver.WatchQuery{})
	w.sees(f.put("a", `{}`))
	w.stop()
	<-w.done
	f.wantCode("a watch whose context ends while it waits", w.err, driver.CodeUnavailable)
	// In its loop.
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var last error
	for _, err := range f.engine.Watch(ctx, &driver.WatchQuery{}) {
		cancel()
		last = err
	}
	f.wantCode("a watch whose context ends in its loop", last, driver.CodeUnavailable)
}

func (s *suite) testWatchClose(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{}`)
	var watchers []*watcher
	for range 5 {
		watchers = append(watchers, f.watch(driver.WatchQuery{}))
	}
	// One is in its loop, which Close does not wait for.
	next := f.engine.Watch(f.ctx, &driver.WatchQuery{})
	var last error
	for _, err := range next {
		if last = err; err == nil {
			if err := f.engine.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
		}
	}
	f.wantCode("a watch whose loop closes the engine", last, driver.CodeUnavailable)
	for _, w := range watchers {
		<-w.done
		f.wantCode("a watch of an engine that closes", w.err, driver.CodeUnavailable)
	}
	f.reopen()
}

// A watcher that takes nothing holds up neither writers nor other watchers,
// and is told everything afterwards.
func (s *suite) testWatchSlow(t *testing.T) {
	f := s.fixture(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var told []*driver.Version
	var last *driver.Version
	done := make(chan struct{})
	go func() {
		defer close(done)
		for a, err := range f.engine.Watch(ctx, &driver.WatchQuery{Collections: []string{collection}}) {
			if err != nil {
				t.Errorf("the slow watch: %v", err)
				return
			}
			if a.Version == nil {
				continue
			}
			if told = append(told, a.Version); len(told) == 1 {
				close(begun)
				<-goOn
			}
			if last != nil && positionOf(a.Version) == positionOf(last) {
				return
			}
		}
	}()
	f.put("a", `{}`)
	<-begun
	quick := f.watch(driver.WatchQuery{FromNow: true})
	for range 30 {
		f.writeSome(f.id())
	}
	last = f.lastly(collection)[0]
	quick.sees(last)
	close(goOn)
	<-done
	if problem := compareArrivals(told, f.everything()); problem != "" {
		t.Error(problem)
	}
}

// Watchers that begin at any moment while many write are told everything once.
func (s *suite) testWatchMany(t *testing.T) {
	f := s.fixture(t)
	const writers, watchers = 6, 24
	f.writeSome("first")
	var mu sync.Mutex
	var all []*watcher
	before := make(map[*watcher][]*driver.Version)
	parallel(writers+watchers/4, func(i int) {
		if i < writers {
			for n := range int64(25) {
				_, err := f.engine.Commit(f.ctx, &driver.Write{
					ID: f.id(), Collection: collection, Key: fmt.Sprint("k", i), Expected: n, Op: driver.OpUpdate, Data: []byte(`{}`),
				})
				if err != nil {
					t.Errorf("Commit: %v", err)
				}
				if n%8 == 0 {
					_, _, err := f.loadAgain(f.ctx, []driver.Version{loaded(fmt.Sprint("l", i, n), driver.Instant(1+n), `{}`)})
					if err != nil {
						t.Errorf("Load: %v", err)
					}
				}
			}
			return
		}
		for n := range 4 {
			q := driver.WatchQuery{}
			var old *watcher
			var was []*driver.Version
			mu.Lock()
			if len(all) > 0 && n > 0 { // go on where another one is
				old = all[(i+n)%len(all)]
				was = slices.Clone(before[old])
			}
			mu.Unlock()
			if old != nil {
				old.mu.Lock()
				at := len(old.positions) / 2
				q.After = old.positions[at]
				was = append(was, old.versions[:at+1]...)
				old.mu.Unlock()
			}
			w := f.watch(q)
			mu.Lock()
			all, before[w] = append(all, w), was
			mu.Unlock()
		}
	})
	last := f.lastly("others", collection)
	want := f.everything()
	for i, w := range all {
		for _, v := range last {
			w.sees(v)
		}
		told := slices.DeleteFunc(append(before[w], w.told()...), func(v *driver.Version) bool { return v == nil })
		if problem := compareArrivals(told, want); problem != "" {
			t.Fatalf("watcher %d: %s", i, problem)
		}
	}
}
