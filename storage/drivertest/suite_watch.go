package drivertest

import (
	"fmt"
	"slices"
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
