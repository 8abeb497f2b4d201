package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
)

// watcher gathers what a watch tells, in a goroutine of its own.
type watcher struct {
	f    *fixture
	q    driver.WatchQuery
	stop context.CancelFunc
	done chan struct{} // closed when the watch has ended

	mu        sync.Mutex
	moved     chan struct{} // closed, and replaced, with every arrival
	positions []driver.WatchPosition
	versions  []*driver.Version // nil where only the position moved
	err       error
}

// watch begins a watch and returns when it has begun.
func (f *fixture) watch(q driver.WatchQuery) *watcher {
	f.Helper()
	ctx, stop := context.WithCancel(f.ctx)
	w := &watcher{f: f, q: q, stop: stop, done: make(chan struct{}), moved: make(chan struct{})}
	f.Cleanup(func() { stop(); <-w.done })
	go func() {
		defer close(w.done)
		for a, err := range f.engine.Watch(ctx, &w.q) {
			w.mu.Lock()
			if w.err = err; err == nil {
				w.positions = append(w.positions, a.Position)
				w.versions = append(w.versions, a.Version)
			}
			close(w.moved)
			w.moved = make(chan struct{})
			w.mu.Unlock()
		}
	}()
	w.until("has begun", func() bool { return len(w.positions) > 0 })
	return w
}

// until waits until a condition holds, which is looked at with every arrival.
func (w *watcher) until(what string, condition func() bool) {
	w.f.Helper()
	for {
		w.mu.Lock()
		ok, moved, err := condition(), w.moved, w.err
		told := arrivalNames(w.versions)
		w.mu.Unlock()
		if ok {
			return
		}
		if err != nil {
			w.f.Fatalf("the watch %+v: %v", w.q, err)
		}
		select {
		case <-moved:
		case <-w.f.ctx.Done():
			w.f.Fatalf("the watch %+v never %s; it told %.2000s", w.q, what, told)
		}
	}
}

// sees waits for a version.
func (w *watcher) sees(v *driver.Version) {
	w.f.Helper()
	w.until(fmt.Sprintf("saw %s %q version %d", v.Collection, v.Key, v.Number), func() bool {
		return slices.ContainsFunc(w.versions, func(got *driver.Version) bool { return got != nil && positionOf(got) == positionOf(v) })
	})
}

// told ends the watch and returns what it told.
func (w *watcher) told() []*driver.Version {
	w.stop()
	<-w.done
	return slices.DeleteFunc(slices.Clone(w.versions), func(v *driver.Version) bool { return v == nil })
}

// end is the position behind all that was told.
func (w *watcher) end() driver.WatchPosition {
	w.stop()
	<-w.done
	return w.positions[len(w.positions)-1]
}

func arrivalNames(vs []*driver.Version) []string {
	var names []string
	for _, v := range vs {
		if v != nil {
			names = append(names, fmt.Sprintf("%c/%s@%d", v.Collection[0], v.Key, v.Number))
		}
	}
	return names
}

// lastly makes a commit to each collection whose arrival, as it is the last,
// tells that all others should be there.
func (f *fixture) lastly(collections ...string) []*driver.Version {
	f.Helper()
	var last []*driver.Version
	for _, name := range collections {
		last = append(last, f.commit(&driver.Write{ID: f.id(), Collection: name, Key: "~" + f.id(), Op: driver.OpCreate, Data: []byte(`{}`)}))
	}
	return last
}

// compareArrivals says how versions that were told, in this order, differ from
// those that should have been, in any order but of a document in that of its
// numbers. first are the numbers that documents had before.
func compareArrivals(told, want []*driver.Version) string {
	missing := make(map[driver.LogPosition]*driver.Version, len(want))
	for _, v := range want {
		missing[positionOf(v)] = v
	}
	numbers := make(map[[2]string]int64)
	for _, v := range told {
		p, d := positionOf(v), [2]string{v.Collection, v.Key}
		w := missing[p]
		switch {
		case w == nil && slices.ContainsFunc(want, func(w *driver.Version) bool { return positionOf(w) == p }):
			return fmt.Sprintf("%s was told twice", describe(v))
		case w == nil:
			return fmt.Sprintf("%s should not have been told", describe(v))
		case !sameButEnd(v, w):
			return fmt.Sprintf("told %s, want %s", describe(v), describe(w))
		case numbers[d] >= v.Number:
			return fmt.Sprintf("%s was told after number %d", describe(v), numbers[d])
		}
		numbers[d] = v.Number
		delete(missing, p)
	}
	for _, v := range missing {
		return fmt.Sprintf("%s was not told, nor were %d others", describe(v), len(missing)-1)
	}
	return ""
}

// everything is all versions that there are.
func (f *fixture) everything() []*driver.Version {
	f.Helper()
	var all []*driver.Version
	for _, e := range f.log(&driver.LogQuery{}) {
		all = append(all, e.Version)
	}
	return all
}
