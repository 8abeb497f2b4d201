package mongostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A lease ends when either clock says so, and is renewed by an exchange.
func TestLease(t *testing.T) {
	const term = 3 * time.Second
	tests := []struct {
		name          string
		elapsed, wall time.Duration // since the last exchange began
		left          time.Duration
	}{
		{"at once", 0, 0, term},
		{"later", time.Second, time.Second, 2 * time.Second},
		{"too late", term, term, 0},
		{"the machine was suspended", time.Millisecond, time.Hour, term - time.Hour},
		{"the clock was put back", time.Second, -time.Hour, 2 * time.Second},
		{"the clock was put back, too late", 4 * time.Second, -time.Hour, -time.Second},
	}
	for _, test := range tests {
		var elapsed time.Duration
		wall := time.UnixMicro(1_000_000_000)
		c := newClock(func() time.Time { return wall }, func() time.Duration { return elapsed }, 1)
		c.term, c.mode, c.floor, c.life = term, alone, driver.Forever, "life"
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := c.takeOff(ended, 0); err == nil {
			t.Errorf("%s: a commit takes off before the first exchange", test.name)
		}
		c.confirm(c.moment())
		at, err := c.takeOff(ended, 0)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		elapsed, wall = test.elapsed, wall.Add(test.wall)
		c.mu.Lock()
		left := c.left()
		c.mu.Unlock()
		if left != test.left {
			t.Errorf("%s: %v are left, want %v", test.name, left, test.left)
		}
		_, flight := c.flightLeft(at)
		_, exclusion := c.exclusionLeft("life")
		_, off := c.takeOff(ended, 0)
		c.land(at)
		_, ok, _ := c.read(ended, false)
		for what, allowed := range map[string]bool{"sending": flight == nil, "loading": exclusion == nil, "taking off": off == nil, "reading": ok} {
			if allowed != (test.left > 0) {
				t.Errorf("%s: %s is allowed: %t", test.name, what, allowed)
			}
		}
	}
}

// The driver looks at the deadline before it sends anything: what is held is not
// sent when it is over, whatever the context says otherwise.
func TestHeldDeadline(t *testing.T) {
	var over error
	left := func() (time.Duration, error) { return time.Hour, over }
	for name, hold := range map[string]func(context.Context, func() (time.Duration, error)) (context.Context, context.CancelFunc, error){"bind": bind, "keep": keep} {
		over = nil
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		ctx, release, err := hold(bounded, left)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := bounded.Deadline()
		if got, ok := ctx.Deadline(); !ok || !got.Equal(want) {
			t.Errorf("%s: the deadline is %v, %t; want %v", name, got, ok, want)
		}
		over = errDead
		if got, ok := ctx.Deadline(); !ok || !got.Before(want.Add(-time.Hour)) {
			t.Errorf("%s, when it is over: the deadline is %v, %t", name, got, ok)
		}
		if _, _, err := hold(bounded, left); !errors.Is(err, errDead) {
			t.Errorf("%s of what is over: %v", name, err)
		}
		release()
		cancel()
	}
}

// What is kept ends when nothing is left, and not before.
func TestKeepEnds(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	ctx, release, err := keep(t.Context(), func() (time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked > 3 {
			return 0, errNotNow()
		}
		return time.Microsecond, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	<-ctx.Done()
	mu.Lock()
	defer mu.Unlock()
	if asked <= 3 {
		t.Errorf("it ended when it was asked %d times", asked)
	}
}

// hang lets commands hang on their way to the server until release is called: the
// first that counts, upon which reached is closed, and from then on all that hang.
func hang(proxy *mongotest.Proxy, counts, hangs func(mongotest.Command) bool) (reached <-chan struct{}, release func()) {
	come, free := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	begun := false
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		mu.Lock()
		wait := begun && hangs(c)
		if !begun && counts(c) {
			begun, wait = true, true
			close(come)
		}
		mu.Unlock()
		if wait {
			<-free
		}
		return mongotest.Pass()
	})
	return come, sync.OnceFunc(func() {
		proxy.Set(nil)
		close(free)
	})
}

func nothing(mongotest.Command) bool { return false }

func ofMeta(c mongotest.Command) bool { return c.Collection() == metaName }

// of is the condition that a command is of a name, about the collection things.
func of(name string) func(mongotest.Command) bool {
	return func(c mongotest.Command) bool { return c.Name == name && c.Collection() == "things" }
}

// await waits for what must happen.
func await(ctx context.Context, t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-ctx.Done():
		t.Fatal("it never came to what the test waits for")
	}
}

// stateOf is what the clock document says.
func stateOf(ctx context.Context, t *testing.T, s *Store) (state *clockState) {
	t.Helper()
	if err := persist(ctx, func() (err error) {
		state, err = s.fleet.doc.read(ctx)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return state
}

// gone waits until a server has removed another one.
func gone(ctx context.Context, t *testing.T, s *Store, id string) {
	t.Helper()
	for there := true; there; {
		_, there = stateOf(ctx, t, s).Servers[id]
	}
}

// lifeOf is what a server is called among the others.
func lifeOf(s *Store) string {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.life
}

// pair opens two servers on a database, one of them behind a proxy, that know of
// each other.
func pair(ctx context.Context, t *testing.T, o Options) (proxy *mongotest.Proxy, behind, beside *Store) {
	t.Helper()
	server := mongotest.NewServer(t)
	proxy, uri, name := server.Behind(t)
	direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
	if err != nil {
		t.Fatal(err)
	}
	beside = newFleetServer(t, direct, o)
	behind = newFleetServer(t, uri, o)
	until(ctx, t, behind, func(c *clock) bool { return c.mode == shared })
	return proxy, behind, beside
}

// A server whose commands hang, and that others take for dead, sends no commit at
// a time that they have passed.
func TestRemovedServerCommitsLater(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{Bounds: map[string]Bounds{"things": {Versions: 2}}})
	n := int64(0)
	for ; n < 3; n++ {
		if _, err := commitAgain(ctx, behind, write("a", fmt.Sprint(n), n)); err != nil {
			t.Fatal(err)
		}
	}
	id := lifeOf(behind)
	// The next one reads its history when it has its time, since that moves on.
	reached, release := hang(proxy, of("find"), ofMeta)
	defer release()
	type result struct {
		v   *driver.Version
		err error
	}
	committed := make(chan result, 1)
	go func() {
		v, err := commitAgain(ctx, behind, write("a", "late", n))
		committed <- result{v, err}
	}()
	await(ctx, t, reached)
	gone(ctx, t, beside, id)
	if _, err := commitAgain(ctx, beside, write("b", "b", 0)); err != nil {
		t.Fatal(err)
	}
	now, err := beside.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before, err := see(ctx, beside, now)
	if err != nil {
		t.Fatal(err)
	}
	release()
	late := <-committed
	if late.err != nil || late.v.RecordedAt <= now {
		t.Errorf("a commit at %+v (%v), and %d was read at before", late.v, late.err, now)
	}
	if after, err := see(ctx, beside, now); err != nil || after != before {
		t.Errorf("at %d there is\n%s\nand was\n%s\n%v", now, after, before, err)
	}
	if lifeOf(behind) == id {
		t.Error("the server came in again under the name of its former life")
	}
}

// loadUntil loads, and does so again until a load has reached some place, where it
// waits: on a slow machine one may be refused before. What that ended with is sent.
func loadUntil(ctx context.Context, s *Store, vs []driver.Version, reached <-chan struct{}) <-chan error {
	loaded := make(chan error, 1)
	go func() {
		for {
			_, err := s.Load(ctx, vs)
			select {
			case <-reached:
			default:
				if driver.CodeOf(err) == driver.CodeUnavailable && ctx.Err() == nil {
					continue
				}
			}
			loaded <- err
			return
		}
	}()
	return loaded
}

// A server that others took for dead before its load was written down loads nothing.
func TestRemovedServerLoadsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{})
	id := lifeOf(behind)
	reached, release := hang(proxy, of("find"), ofMeta)
	defer release()
	vs := two(0, "things")
	loaded := loadUntil(ctx, behind, vs, reached)
	await(ctx, t, reached)
	gone(ctx, t, beside, id)
	if _, err := commitAgain(ctx, beside, write("b", "b", 0)); err != nil {
		t.Fatal(err)
	}
	release()
	if err := <-loaded; driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "nothing was loaded") {
		t.Errorf("Load: %v", err)
	}
	checkLoaded(ctx, t, beside, nil)
	if n := countVersions(t, beside); n != 1 {
		t.Errorf("%d versions are there", n)
	}
	if _, err := loadAgain(ctx, behind, vs); err != nil {
		t.Errorf("loading it again: %v", err)
	}
	checkLoaded(ctx, t, beside, vs)
}

// What a server was loading when others took it for dead is completed before they
// commit; the server itself says no more than that it does not know.
func TestRemovedServerLoads(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{})
	id := lifeOf(behind)
	reached, release := hang(proxy, of("insert"), ofMeta)
	defer release()
	vs := two(0, "things")
	loaded := loadUntil(ctx, behind, vs, reached)
	await(ctx, t, reached)
	gone(ctx, t, beside, id)
	var conflict *driver.ConflictError
	if _, err := commitAgain(ctx, beside, write(vs[1].Key, "b", 0)); !errors.As(err, &conflict) {
		t.Errorf("a commit after the load of the same document: %v", err)
	}
	checkLoaded(ctx, t, beside, vs)
	release()
	if err := <-loaded; err != nil && driver.CodeOf(err) != driver.CodeUnavailable {
		t.Errorf("Load: %v", err)
	}
	if _, err := commitAgain(ctx, behind, write("c", "c", 0)); err != nil {
		t.Error(err)
	}
	checkLoaded(ctx, t, beside, vs)
}

// A server that was removed begins anew: nobody waits for what it had in flight,
// and what it had sent has no effect any more.
func TestNewLife(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	first, second := newFleetServer(t, uri, Options{}), newFleetServer(t, uri, Options{})
	flight, err := again(ctx, func(ctx context.Context) (driver.Instant, error) { return first.clock.takeOff(ctx, 0) })
	if err != nil {
		t.Fatal(err)
	}
	beats := stateOf(ctx, t, second).Servers
	id := remove(ctx, t, first)
	former := &clockDocument{meta: first.meta, id: id, beat: beats[id].Beat, changes: first.fleet.doc.changes, reads: first.fleet.doc.reads}
	until(ctx, t, first, func(c *clock) bool { return c.life != id && c.mode == shared })
	if _, err := first.clock.flightLeft(flight); !errors.Is(err, errDead) {
		t.Errorf("what was in flight may still be sent: %v", err)
	}
	v, err := commitAgain(ctx, second, write("a", "1", 0))
	if err != nil {
		t.Fatal(err)
	}
	if now, err := first.Now(ctx); err != nil || now < v.RecordedAt {
		t.Errorf("Now is %d (%v), after a commit at %d", now, err, v.RecordedAt)
	}
	// Until the new life has as many beats as the former one had.
	until(ctx, t, first, func(c *clock) bool { return c.beat > former.beat })
	if _, err := former.exchange(ctx, func() {}, bson.D{{Key: former.field("low"), Value: int64(1)}}, nil); !errors.Is(err, errRemoved) {
		t.Errorf("an exchange of the former life: %v", err)
	}
}

// What a load has asked for gets no time in the next life, where nobody would land it.
func TestLoadEndsWithLife(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	c := newClock(time.Now, func() time.Duration { return 0 }, 1)
	c.mode, c.life, c.loading, c.claimed = shared, "first", true, true
	asked := make(chan struct{})
	c.kick = sync.OnceFunc(func() { close(asked) })
	refused := make(chan error, 1)
	go func() {
		_, err := c.takeOffLoading(ctx, 0, "first")
		refused <- err
	}()
	<-asked
	if !c.die("second") {
		t.Error("the load is not to be completed")
	}
	c.mu.Lock()
	waiting := len(c.waiting)
	c.mu.Unlock()
	if waiting != 0 {
		t.Errorf("%d wait for their times", waiting)
	}
	if err := <-refused; !errors.Is(err, errDead) {
		t.Errorf("the load was told %v", err)
	}
}
