package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) watchTests() []test {
	return []test{
		{"FromTheBeginning", s.testWatchBeginning},
		{"FromNow", s.testWatchFromNow},
		{"FromAPosition", s.testWatchPosition},
		{"LoadsArriveWhenTheyAreLoaded", s.testWatchLoads},
		{"OnlySomeCollections", s.testWatchCollections},
		{"WakesUp", s.testWatchWakes},
		{"PositionsOfOthersAreRefused", s.testWatchRefuses},
		{"EndsWithItsContext", s.testWatchContext},
		{"EndsWithTheEngine", s.testWatchClose},
		{"SlowWatchersHoldNobodyUp", s.testWatchSlow},
		{"ManyWatchersAndWriters", s.testWatchMany},
		{"Random", s.testWatchRandom},
	}
}

// writeSome makes history of all kinds: versions that were there before,
// updates, a deletion, many versions, a batch.
func (f *fixture) writeSome(name string) {
	f.Helper()
	f.load(loaded(name, 10, `{"n":1}`), loaded(name+"2", 11, ""), loaded(name, 12, `{"n":2}`))
	f.put(name, `{"n":3}`)
	f.remove(name)
	f.put(name, `{"n":4}`)
	parallel(8, func(i int) {
		_, err := f.engine.Commit(f.ctx, &driver.Write{
			ID: f.id(), Collection: collection, Key: fmt.Sprint(name, "batch", i), Op: driver.OpCreate, Data: []byte(`{}`),
		})
		if err != nil {
			f.Errorf("Commit: %v", err)
		}
	})
	for range 5 {
		f.clock.move(time.Second)
		f.put(name+"many", `{}`)
	}
}

func (s *suite) testWatchBeginning(t *testing.T) {
	f := s.fixture(t)
	f.writeSome("a")
	for range 2 {
		w := f.watch(driver.WatchQuery{})
		f.writeSome("b" + f.id())
		for _, v := range f.lastly("others", collection) {
			w.sees(v)
		}
		if problem := compareArrivals(w.told(), f.everything()); problem != "" {
			t.Error(problem)
		}
		f.reopen()
	}
}

func (s *suite) testWatchFromNow(t *testing.T) {
	f := s.fixture(t)
	for i := range 3 {
		f.writeSome(fmt.Sprint("before", i))
		before := len(f.everything())
		w := f.watch(driver.WatchQuery{FromNow: true})
		var want []*driver.Version
		for range 3 {
			want = append(want, f.put("a", `{"n":5}`))
		}
		w.sees(want[2])
		if problem := compareArrivals(w.told(), want); problem != "" {
			t.Errorf("behind %d versions: %s", before, problem)
		}
		// Behind its first position lies the same.
		again := f.watch(driver.WatchQuery{After: w.positions[0]})
		again.sees(want[2])
		if problem := compareArrivals(again.told(), want); problem != "" {
			t.Errorf("again, behind %d versions: %s", before, problem)
		}
	}
}

// Behind every position that a watch told lies what it told after it, also when
// the engine was closed in between.
func (s *suite) testWatchPosition(t *testing.T) {
	f := s.fixture(t)
	f.writeSome("a")
	first := f.watch(driver.WatchQuery{})
	f.writeSome("b")
	for _, v := range f.lastly("others", collection) {
		first.sees(v)
	}
	first.told()
	for round := range 2 {
		for i, p := range first.positions {
			if round == 1 && i%5 != 0 {
				continue
			}
			w := f.watch(driver.WatchQuery{After: p})
			for _, v := range f.lastly("others", collection) {
				w.sees(v)
			}
			told := slices.DeleteFunc(slices.Clone(first.versions[:i+1]), func(v *driver.Version) bool { return v == nil })
			if problem := compareArrivals(append(told, w.told()...), f.everything()); problem != "" {
				t.Fatalf("round %d, behind arrival %d: %s", round, i, problem)
			}
		}
		f.reopen()
	}
}

// What is loaded with times of the past arrives all the same, behind what
// arrived before, whether its times are before all commits, between them, or
// behind.
func (s *suite) testWatchLoads(t *testing.T) {
	f := s.fixture(t)
	f.load(loaded("old", 5, `{"n":1}`))
	first := f.put("a", `{"n":1}`)
	f.clock.move(time.Minute)
	second := f.put("a", `{"n":2}`)
	f.clock.move(time.Minute)
	w := f.watch(driver.WatchQuery{})
	w.sees(second)
	at := driver.InstantOf(f.clock.now())
	f.load(
		loaded("before", 10, `{"n":1}`), loaded("before", first.RecordedAt-1, `{"n":2}`),
		loaded("across", first.RecordedAt-1, `{"n":1}`), loaded("across", first.RecordedAt, `{"n":2}`),
		loaded("across", first.RecordedAt+1, ""), loaded("across", second.RecordedAt, `{"n":3}`),
		loaded("across", second.RecordedAt+1, `{"n":4}`), loaded("across", at, `{"n":5}`),
		loaded("behind", second.RecordedAt+2, `{"n":1}`), loaded("old", second.RecordedAt-1, ""),
	)
	f.put("across", `{"n":6}`)
	f.load(loaded("between", second.RecordedAt+3, `{"n":1}`), loaded("old", second.RecordedAt+4, `{"n":1}`))
	third := f.put("a", `{"n":3}`)
	// The same again is no arrival.
	if got := f.load(loaded("between", second.RecordedAt+3, `{"n":1}`)); got.Skipped != 1 {
		t.Errorf("loaded again: %+v", got)
	}
	for _, v := range append(f.lastly("others", collection), third) {
		w.sees(v)
	}
	if problem := compareArrivals(w.told(), f.everything()); problem != "" {
		t.Error(problem)
	}
	for i, p := range w.positions {
		f.reopen()
		again := f.watch(driver.WatchQuery{After: p})
		for _, v := range f.lastly("others", collection) {
			again.sees(v)
		}
		before := slices.DeleteFunc(slices.Clone(w.versions[:i+1]), func(v *driver.Version) bool { return v == nil })
		if problem := compareArrivals(append(before, again.told()...), f.everything()); problem != "" {
			t.Errorf("behind arrival %d: %s", i, problem)
		}
	}
}

func (s *suite) testWatchCollections(t *testing.T) {
	f := s.fixture(t)
	write := func(name string, n int) {
		for range n {
			f.commit(&driver.Write{ID: f.id(), Collection: name, Key: f.id(), Op: driver.OpCreate, Data: []byte(`{}`)})
		}
	}
	of := func(name string) []*driver.Version {
		return slices.DeleteFunc(f.everything(), func(v *driver.Version) bool { return v.Collection != name })
	}
	write(collection, 20)
	other := loaded("a", 1, `{}`)
	other.Collection = "others"
	f.load(other, loaded("b", 1, `{}`))
	w := f.watch(driver.WatchQuery{Collections: []string{"others"}})
	write("others", 3)
	write(collection, 700)
	w.sees(f.lastly("others")[0])
	if problem := compareArrivals(w.told(), of("others")); problem != "" {
		t.Error(problem)
	}
	// From its end, the other collection is told only what is new.
	rest := f.watch(driver.WatchQuery{Collections: []string{collection, "others", collection}, After: w.end()})
	before := len(of(collection))
	write(collection, 5)
	for _, v := range f.lastly(collection) {
		rest.sees(v)
	}
	if told := rest.told(); len(told) < 6 || len(told) > 6+before {
		t.Errorf("behind the end: %q", arrivalNames(told))
	}
}

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
					_, err := f.engine.Load(f.ctx, []driver.Version{loaded(fmt.Sprint("l", i, n), driver.Instant(1+n), `{}`)})
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
