package storage_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// step is what a watch has come to: an event, or, the first time, its beginning.
type step struct {
	*storage.Event
	position string
}

func (s step) Begins() bool     { return s.Event == nil }
func (s step) Position() string { return s.position }

// follow yields what a watch delivers until that fails or is left.
func (e *env) follow(ctx context.Context, q storage.WatchQuery) iter.Seq2[step, error] {
	return func(yield func(step, error) bool) {
		grown := make(chan struct{}, 1)
		defer e.store.Notify(func() {
			select {
			case grown <- struct{}{}:
			default:
			}
		})()
		w, err := e.store.Watch(ctx, q)
		left := err == nil && !yield(step{position: w.Position()}, nil)
		for !left && err == nil {
			var more bool
			more, err = w.Next(ctx, func(event *storage.Event) bool {
				left = !yield(step{event, event.Position()}, nil)
				return !left
			})
			if more || left || err != nil {
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
				err = fault.Ended(ctx.Err())
			}
		}
		if !left {
			yield(step{}, err)
		}
	}
}

// watched follows a watch until it has told so many versions, and describes them.
func (e *env) watched(q storage.WatchQuery, n int) (told, positions []string) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	defer cancel()
	for event, err := range e.follow(ctx, q) {
		if err != nil {
			e.t.Fatalf("after %q: %v", told, err)
		}
		positions = append(positions, event.Position())
		if !event.Begins() {
			id := "deleted"
			if d := event.Document(); d != nil {
				id = d.ID()
			}
			changes := must(event.Changes(e.t.Context()))(e.t)
			info := event.VersionInfo()
			told = append(told, fmt.Sprintf("%s %s@%d %s %s by %s: %s", event.DocumentType(), event.Key(), info.Number(), info.Operation(), id, info.Author().ID, strings.Join(lines(changes), ", ")))
		}
		if len(told) == n {
			break
		}
	}
	return told, positions
}

func TestWatch(t *testing.T) {
	e := newEnv(t)
	since := e.clock.advance(0)
	e.clock.advance(1)
	e.create("a", map[string]any{"name": "A", "tags": []any{"x"}})
	e.update("bob", "a", 1, map[string]any{"name": "B"})
	if _, err := e.projects.Delete(e.as("eve"), storage.DeleteInput{Key: "a", ExpectedVersion: 2}); err != nil {
		t.Fatal(err)
	}
	e.create("b", map[string]any{"name": "B", "tags": []any{}})
	want := []string{
		`Project a@1 CREATE Project:a@1 by ann: ADD /name -> "A", ADD /tags -> ["x"], ADD /archived -> false`,
		`Project a@2 UPDATE Project:a@2 by bob: REPLACE /name "A" -> "B"`,
		`Project a@3 DELETE deleted by eve: REMOVE /name "B", REMOVE /tags ["x"], REMOVE /archived false`,
		`Project b@1 CREATE Project:b by ann: ADD /name -> "B", ADD /tags -> [], ADD /archived -> false`,
	}
	all, positions := e.watched(storage.WatchQuery{Since: &since}, 4)
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	for i := range want {
		got, _ := e.watched(storage.WatchQuery{After: positions[i]}, len(want)-i)
		if diff := cmp.Diff(want[i:], got); diff != "" {
			t.Errorf("behind event %d (-want +got):\n%s", i, diff)
		}
	}
	// From now, of one type, with what is committed in the loop.
	var got []string
	for event, err := range e.follow(t.Context(), storage.WatchQuery{Collections: []string{"software"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if !event.Begins() {
			got = append(got, event.Key())
		}
		if len(got) == 3 {
			break
		}
		e.create(fmt.Sprintf("c%d", len(got)), map[string]any{"name": "C", "tags": []any{}})
	}
	if strings.Join(got, " ") != "c0 c1 c2" {
		t.Errorf("from now: %q", got)
	}
}

// Many watches, some of which begin in the middle, tell the same while many write: each
// version once, in the order of commits.
func TestWatchesTellAll(t *testing.T) {
	const writers, writes, watches = 4, 100, 6
	e := newEnv(t)
	e.create("first", map[string]any{"name": "A", "tags": []any{}})
	since := e.get("first").Document.VersionInfo().RecordedAt() - 1
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	told := make([][]string, watches)
	for i := range told {
		all.Go(func() {
			q := storage.WatchQuery{Since: &since}
			for len(told[i]) < writers*writes+1 {
				for event, err := range e.follow(ctx, q) {
					if err != nil {
						t.Errorf("watch %d, after %d versions: %v", i, len(told[i]), err)
						return
					}
					q = storage.WatchQuery{After: event.Position()}
					if !event.Begins() {
						told[i] = append(told[i], fmt.Sprintf("%s@%d", event.Key(), event.VersionInfo().Number()))
						if n := len(told[i]); n == writers*writes+1 || i > 2 && n%(10*i) == 0 {
							break // it goes on behind the position
						}
					}
				}
			}
		})
	}
	for w := range writers {
		all.Go(func() {
			for n := range writes {
				key := fmt.Sprintf("w%d-%d", w, n)
				if _, err := e.projects.Create(ctx, storage.CreateInput{Key: key, Data: map[string]any{"name": "N", "tags": []any{}}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	var want []string
	for v, err := range e.engine.Log(t.Context(), &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%s@%d", v.Key, v.Number))
	}
	for i := range told {
		if diff := cmp.Diff(want, told[i]); diff != "" {
			t.Errorf("watch %d (-log +told):\n%.2000s", i, diff)
		}
	}
}

// A load ends watches, those that go on behind a position of before too; those that begin
// afterwards go on.
func TestLoadsEndWatches(t *testing.T) {
	e := newEnv(t)
	e.create("a", map[string]any{"name": "A", "tags": []any{}})
	position, ends := "", 0
	var ended error
	for event, err := range e.follow(t.Context(), storage.WatchQuery{}) {
		if err != nil {
			ended = err
			ends++
			continue // the watch ends by itself
		}
		position = event.Position()
		e.load("tags", "x", `{"name":"X"}`)
	}
	var resync *storage.ResyncError
	if !errors.As(ended, &resync) || ends != 1 {
		t.Errorf("the watch ended with %v, %d times", ended, ends)
	}
	for _, err := range e.follow(t.Context(), storage.WatchQuery{After: position}) {
		ended = err
	}
	if !errors.As(ended, &resync) {
		t.Errorf("behind a position of before it: %v", ended)
	}
	e.clock.advance(time.Second)
	n := 0
	for event, err := range e.follow(t.Context(), storage.WatchQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; !event.Begins() {
			break
		}
		e.create("b", map[string]any{"name": "B", "tags": []any{}})
	}
	if n != 2 {
		t.Errorf("%d events after the load", n)
	}
}

// heldNow is an engine whose next Now is held up until it is released, after it was read.
type heldNow struct {
	driver.Engine
	armed   atomic.Bool
	release chan struct{}
}

func (h *heldNow) Now(ctx context.Context) (driver.Instant, error) {
	at, err := h.Engine.Now(ctx)
	if h.armed.CompareAndSwap(true, false) {
		<-h.release
	}
	return at, err
}

// A watch takes part in a round that another one began, and a commit comes between that and its
// own beginning: it delivers the commit at once, and not when it is woken by the time.
func TestSharedRoundWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		e.create("a", map[string]any{"name": "A", "tags": []any{}})
		since := e.get("a").Document.VersionInfo().RecordedAt() - 1
		held := &heldNow{Engine: e.engine.Engine, release: make(chan struct{})}
		e.engine.Engine = held
		follow := func(keys ...string) {
			for event, err := range e.follow(t.Context(), storage.WatchQuery{Since: &since}) {
				if err != nil {
					t.Error(err)
					return
				}
				if event.Begins() {
					continue
				}
				if event.Key() != keys[0] {
					t.Errorf("delivered %s, want %q", event.Key(), keys)
				}
				if keys = keys[1:]; len(keys) == 0 {
					return
				}
			}
		}
		var watches sync.WaitGroup
		held.armed.Store(true)
		watches.Go(func() { follow("a") })
		synctest.Wait() // it reads the round
		e.create("b", map[string]any{"name": "B", "tags": []any{}})
		watches.Go(func() { follow("a", "b") })
		synctest.Wait() // it waits for the round
		began := time.Now()
		close(held.release)
		watches.Wait()
		if slept := time.Since(began); slept > 0 {
			t.Errorf("the commit was delivered after %v", slept)
		}
	})
}

// countedLogs counts how often the log is read. Its time goes on with each look at it.
type countedLogs struct {
	driver.Engine
	clock *clock
	n     atomic.Int64
}

func (c *countedLogs) Now(ctx context.Context) (driver.Instant, error) {
	c.clock.advance(time.Microsecond)
	return c.Engine.Now(ctx)
}

func (c *countedLogs) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	c.n.Add(1)
	return c.Engine.Log(ctx, q)
}

// Watches that began at different instants read each commit once, not once each.
func TestWatchesShareRounds(t *testing.T) {
	const watches, commits = 50, 20
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		counted := &countedLogs{Engine: e.engine.Engine, clock: e.clock}
		e.engine.Engine = counted
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var told atomic.Int64
		for range watches {
			all.Go(func() {
				for event, err := range e.follow(ctx, storage.WatchQuery{}) {
					if err == nil && !event.Begins() {
						told.Add(1)
					}
				}
			})
			synctest.Wait()
		}
		commit := func(key string) {
			e.create(key, map[string]any{"name": "A", "tags": []any{}})
			synctest.Wait()
		}
		commit("first") // from which on they are together
		before := counted.n.Load()
		for i := range commits {
			commit(fmt.Sprintf("k%d", i))
		}
		if n := counted.n.Load() - before; n > 2*commits {
			t.Errorf("the log was read %d times for %d commits", n, commits)
		}
		cancel()
		all.Wait()
		if n := told.Load(); n != watches*(commits+1) {
			t.Errorf("%d events, want %d", n, watches*(commits+1))
		}
	})
}

// A watch that follows another one from an equal place tells what that has not, once.
func TestWatchFollows(t *testing.T) {
	e := newEnv(t)
	since := e.clock.advance(0)
	e.clock.advance(1)
	for _, key := range []string{"a", "b", "c", "d"} {
		e.create(key, map[string]any{"name": "A", "tags": []any{}})
	}
	next := func(w *storage.Watch, most int) (keys string) {
		must(w.Next(t.Context(), func(event *storage.Event) bool {
			if len(keys) == most {
				return false
			}
			keys += event.Key()
			return true
		}))(t)
		return keys
	}
	begin := func() *storage.Watch { return must(e.store.Watch(t.Context(), storage.WatchQuery{Since: &since}))(t) }
	one, other, late := begin(), begin(), begin()
	if one.Place() != other.Place() {
		t.Fatalf("%v and %v begin at the same instant", one.Place(), other.Place())
	}
	for _, step := range []struct {
		most         int
		first, after string
	}{{2, "ab", "cd"}, {4, "cd", ""}} {
		if got := next(one, step.most); got != step.first {
			t.Errorf("the first was told %q, not %q", got, step.first)
		}
		if one.Place() == other.Place() {
			t.Error("who has told more is at the same place")
		}
		other.Follow(one.Place())
		if one.Place() != other.Place() || one.Position() != other.Position() || one.Past() != other.Past() {
			t.Error("who has followed is at another place")
		}
		late.Follow(other.Place())
		if got := next(late, 4); got != step.after {
			t.Errorf("behind the place %q is told, not %q", got, step.after)
		}
	}
	e.create("e", map[string]any{"name": "A", "tags": []any{}})
	if a, b := next(one, 4), next(other, 4); a != "e" || b != "e" || one.Place() != other.Place() {
		t.Errorf("then %q and %q are told", a, b)
	}
}

// tiring is an engine that regards no hints, and ends a context when so many versions of a log were read.
type tiring struct {
	driver.Engine
	left int
	end  context.CancelFunc
}

func (e *tiring) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	all := *q
	all.Hints = driver.Hints{}
	return func(yield func(*driver.Version, error) bool) {
		for v, err := range e.Engine.Log(ctx, &all) {
			if e.left--; e.left < 0 {
				e.end()
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// Who finds nothing in a long past, and has not the time to read it at once, goes on behind the
// position, which is further on each time, and is told all that comes later.
func TestWatchesOfALongPast(t *testing.T) {
	e := newEnv(t)
	since := e.clock.advance(0)
	for i := range 30 {
		e.clock.advance(time.Hour)
		e.create(fmt.Sprint("old", i), map[string]any{"name": "A", "tags": []any{}})
	}
	engine := &tiring{Engine: e.engine.Engine}
	e.engine.Engine = engine
	q := storage.WatchQuery{Since: &since, Hints: driver.Hints{Authors: []string{"bob"}}}
	for times := 0; ; times++ {
		ctx, cancel := context.WithCancel(t.Context())
		engine.left, engine.end = 5, cancel
		w := must(e.store.Watch(ctx, q))(t)
		var told []string
		take := func(event *storage.Event) bool {
			told = append(told, event.Key())
			return true
		}
		var err error
		for err == nil && w.Past() {
			_, err = w.Next(ctx, take)
		}
		if err == nil {
			engine.left = 30
			e.update("bob", "old0", 1, map[string]any{"name": "B"})
			e.clock.advance(time.Second)
			_, err = w.Next(ctx, take)
		}
		cancel()
		if len(told) > 0 && err == nil {
			if times == 0 || len(told) != 1 || told[0] != "old0" {
				t.Errorf("the %dth time it told %q", times, told)
			}
			return
		}
		wantError(t, err, fault.CodeUnavailable)
		if w.Position() == q.After || len(told) > 0 {
			t.Fatalf("it told %q up to %s", told, w.Position())
		}
		q = storage.WatchQuery{After: w.Position(), Hints: q.Hints}
	}
}

func TestWatchRefuses(t *testing.T) {
	e := newEnv(t)
	first := func(ctx context.Context, q storage.WatchQuery) error {
		for _, err := range e.follow(ctx, q) {
			return err
		}
		return nil
	}
	future := e.clock.advance(0) + driver.Instant(time.Hour.Microseconds())
	wantError(t, first(t.Context(), storage.WatchQuery{After: "x"}), fault.CodeBadUserInput, "not the position of an event")
	wantError(t, first(t.Context(), storage.WatchQuery{Since: &future}), fault.CodeAsOfInFuture, "in the future")
	wantError(t, first(t.Context(), storage.WatchQuery{Since: &future, After: "x"}), fault.CodeBadUserInput, "not both")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, first(ctx, storage.WatchQuery{}), fault.CodeUnavailable)
}

// A loop that falls behind what is kept is ended, and goes on behind its position without a gap.
func TestSlowWatches(t *testing.T) {
	e := newEnv(t)
	const versions = 12
	long := strings.Repeat("x", 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun, written := make(chan struct{}), make(chan struct{})
	var others sync.WaitGroup
	var told []int
	since := e.clock.advance(0)
	q := storage.WatchQuery{Since: &since}
	e.clock.advance(1)
	e.create("a", map[string]any{"name": "A", "tags": []any{}})
	var ended error
	others.Go(func() { // the slow one
		for event, err := range e.follow(ctx, q) {
			if err != nil {
				ended = err
				break
			}
			if q = (storage.WatchQuery{After: event.Position()}); event.Begins() {
				continue
			}
			if told = append(told, event.VersionInfo().Number()); len(told) == 1 {
				close(begun)
				<-written
			}
		}
	})
	fast := make(chan int, versions)
	others.Go(func() {
		for event, err := range e.follow(ctx, storage.WatchQuery{Since: &since}) {
			if err != nil {
				t.Error(err)
				close(fast)
				return
			}
			if event.Begins() {
				continue
			}
			if fast <- event.VersionInfo().Number(); event.VersionInfo().Number() == versions {
				return
			}
		}
	})
	<-begun
	for n := range versions - 1 {
		if got := <-fast; got != n+1 {
			t.Fatalf("version %d after %d", got, n)
		}
		e.update("bob", "a", n+1, map[string]any{"description": long + fmt.Sprint(n)})
	}
	<-fast
	close(written)
	others.Wait()
	wantError(t, ended, fault.CodeTooSlow, "go on behind the last position")
	for event, err := range e.follow(ctx, q) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Begins() {
			continue
		}
		if told = append(told, event.VersionInfo().Number()); len(told) == versions {
			break
		}
	}
	for i, n := range told {
		if n != i+1 {
			t.Fatalf("told of versions %v", told)
		}
	}
}
