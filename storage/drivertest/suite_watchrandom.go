package drivertest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// Random operations, closings included, while watchers come, go, and go on
// from positions of any time: together with what was told before its position,
// each is told everything once.
func (s *suite) testWatchRandom(t *testing.T) {
	for i := range uint64(3 * s.scale) {
		t.Run(fmt.Sprintf("seed %d.%d", s.seed, i), func(t *testing.T) {
			gen := newGenerator(s.seed, 7000+i)
			declared := []driver.Collection{{Name: collection, Indexes: indexes(gen.shape)}, {Name: "others"}}
			r := &operations{
				pair: s.pair(t, gen, declared...), all: declared, writes: make(map[driver.LogPosition]*driver.Write),
				variant: variant{keys: 10},
			}
			w := &watching{operations: r}
			for range s.tries(160) {
				w.step()
				if t.Failed() {
					return
				}
			}
			w.compare()
		})
	}
}

// watching is the state of a random history with watchers.
type watching struct {
	*operations
	running []*watcher
	known   []knownPosition
}

// knownPosition is a position with what is before it.
type knownPosition struct {
	position driver.WatchPosition
	told     []*driver.Version
}

func (w *watching) step() {
	g := w.gen
	switch n := g.IntN(100); {
	case n < 50:
		w.randomCommit()
	case n < 70:
		w.randomLoad()
	case n < 78:
		w.moveClock()
	case n < 81:
		w.compare() // the watchers end with the engine
		w.reopenRandomly()
	case n < 90 || len(w.running) > 6:
		w.leave()
	default:
		w.begin()
	}
}

// begin starts a watch, from the beginning or where one was before.
func (w *watching) begin() {
	q := driver.WatchQuery{}
	if len(w.known) > 0 && w.gen.chance(70) {
		q.After = pick(w.gen, w.known).position
	}
	w.running = append(w.running, w.watch(q))
}

// leave ends a watch wherever it is.
func (w *watching) leave() {
	if len(w.running) == 0 {
		return
	}
	i := w.gen.IntN(len(w.running))
	w.note(w.running[i])
	w.running = slices.Delete(w.running, i, i+1)
}

// note remembers some of the positions of a watch, and returns all that is
// before its end.
func (w *watching) note(one *watcher) []*driver.Version {
	one.told()
	var all []*driver.Version
	for _, k := range w.known {
		if k.position == one.q.After {
			all = slices.Clone(k.told)
		}
	}
	for i, v := range one.versions {
		if v != nil {
			all = append(all, v)
		}
		if w.gen.chance(20) || i == len(one.versions)-1 {
			w.known = append(w.known, knownPosition{one.positions[i], slices.Clone(all)})
		}
	}
	return all
}

// compare ends all watches behind everything that there is.
func (w *watching) compare() {
	w.Helper()
	var last []*driver.Version
	for _, v := range w.lastly("others", collection) {
		w.mirror(v)
		last = append(last, v)
	}
	want := make([]*driver.Version, 0, len(w.model.arrivals.list))
	for _, p := range w.model.arrivals.list {
		want = append(want, w.model.documents[p.Collection][p.Key][p.Number-1])
	}
	for _, one := range w.running {
		for _, v := range last {
			one.sees(v)
		}
		if problem := compareArrivals(w.note(one), want); problem != "" {
			w.Fatalf("the watch %+v: %s", one.q, problem)
		}
	}
	w.running = nil
}
