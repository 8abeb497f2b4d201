package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// newTarget returns a store for an archive, whose clock is ahead.
func newTarget(t *testing.T, around func(driver.Engine) driver.Engine) *env {
	t.Helper()
	e := newEnvOver(t, around)
	e.clock.advance(1000 * 24 * time.Hour)
	return e
}

// archive goes on with the archive of a store, as a program does that begins, and returns how
// many versions were added.
func (e *env) archive(to *env) (added int64, err error) {
	e.t.Helper()
	return must(storage.NewArchive(e.t.Context(), e.store, to.store))(e.t).Follow(e.t.Context())
}

// dump describes all that an archive takes along, seals included.
func (e *env) dump() (all []string) {
	e.t.Helper()
	for v, err := range e.store.Engine().Log(e.t.Context(), &driver.LogQuery{}) {
		if err != nil {
			e.t.Fatal(err)
		}
		if storage.IsArchived(v.Collection) {
			all = append(all, fmt.Sprintf("%s %s@%d %v %d %v %q %q %q %v %s %x", v.Collection, v.Key, v.Number, v.RecordedAt, v.Op, v.Deleted, v.Author, v.Message, v.Group, v.Changed, v.Data, v.Seal))
		}
	}
	return all
}

// wantSame fails unless a target holds what the source does.
func (e *env) wantSame(to *env) {
	e.t.Helper()
	if diff := cmp.Diff(e.dump(), to.dump()); diff != "" {
		e.t.Fatalf("the archive (-source +archive):\n%s", diff)
	}
}

// Whatever is committed, and loaded into the past, arrives as it is, once, whenever the archive is
// looked after, and by whom.
func TestArchive(t *testing.T) {
	e, to := newEnv(t), newTarget(t, nil)
	r := rand.New(rand.NewPCG(3, 5))
	var same *storage.Archive
	for step := range 60 {
		key := fmt.Sprint(r.IntN(5))
		switch r.IntN(6) {
		case 0:
			e.load("tags", key, fmt.Sprintf(`{"name":"%d"}`, step))
		case 1: // into the past
			v := driver.Version{Collection: "tags", Key: fmt.Sprint("old", step), RecordedAt: driver.Instant(r.Int64N(1e15)) + 1, Author: "importer", Data: []byte(`{"name":"old"}`)}
			if _, err := e.store.Load(t.Context(), []driver.Version{v}); err != nil {
				t.Fatal(err)
			}
		case 2:
			if e.get("d"+key) == nil {
				e.create("d"+key, map[string]any{"name": key, "tags": []any{key}})
			}
		case 3:
			if p := e.get("d" + key); p != nil {
				e.update("bob", "d"+key, p.Version(), map[string]any{"name": fmt.Sprint(step)})
			}
		case 4:
			if p := e.get("d" + key); p != nil {
				must(e.projects.Delete(e.as("eve"), storage.DeleteInput{Key: "d" + key, ExpectedVersion: p.Version()}))(t)
			}
		}
		switch r.IntN(4) {
		case 0:
			must(e.archive(to))(t)
			e.wantSame(to)
		case 1:
			if same == nil {
				same = must(storage.NewArchive(t.Context(), e.store, to.store))(t)
			}
			must(same.Follow(t.Context()))(t)
			e.wantSame(to)
			if differences, err := same.Verify(t.Context()); err != nil || len(differences) > 0 {
				t.Fatalf("it differs: %q, %v", differences, err)
			}
		}
	}
	must(e.archive(to))(t)
	e.wantSame(to)
	if added := must(e.archive(to))(t); added != 0 || len(e.dump()) < 30 {
		t.Errorf("%d versions were added again to %d", added, len(e.dump()))
	}
}

// What the source prunes stays in the archive. Where it was pruned before, lists of then are refused.
func TestArchiveOfWhatIsPruned(t *testing.T) {
	e, to := newEnvOf(t, keepTypes(&record.Keep{Versions: 1}), nil), newTarget(t, nil)
	var times []driver.Instant
	write := func(n int) {
		for range n {
			times = append(times, e.load("software", "a", fmt.Sprintf(`{"name":"%d","tags":[]}`, len(times))))
		}
	}
	prune := func() {
		e.clock.advance(2 * record.Grace)
		if pruneAll(t, e, false) == 0 {
			t.Fatal("nothing is pruned")
		}
	}
	horizon := func() driver.Instant {
		return must(to.store.HorizonOf(t.Context(), to.store.Types()[0]))(t)
	}
	write(4)
	must(e.archive(to))(t)
	prune()
	must(e.archive(to))(t)
	if got := horizon(); got != 0 {
		t.Errorf("the archive has all, and is complete from %v on", got)
	}
	write(4)
	prune()
	must(e.archive(to))(t)
	if want := times[7]; horizon() != want {
		t.Errorf("the archive is complete from %v on, want %v", horizon(), want)
	}
	if differences, err := must(storage.NewArchive(t.Context(), e.store, to.store))(t).Verify(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("it differs: %q, %v", differences, err)
	}
	if err := to.store.LearnPruned(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, at := range times {
		p, err := to.projects.Get(to.begin(), "a", &at, nil)
		switch lost := i >= 4 && i < 7; {
		case lost:
			wantError(t, err, fault.CodeHistoryPruned)
		case err != nil || p == nil:
			t.Errorf("version %d: %v, %v", i+1, p, err)
		}
	}
}

// Who writes into an archive is found out.
func TestArchiveRefusesWhatIsElsewhere(t *testing.T) {
	e, to := newEnv(t), newTarget(t, nil)
	e.load("tags", "a", `{"name":"a"}`)
	must(e.archive(to))(t)
	to.load("tags", "b", `{"name":"b"}`)
	a := must(storage.NewArchive(t.Context(), e.store, to.store))(t)
	must(a.Follow(t.Context()))(t)
	if differences, err := a.Verify(t.Context()); err != nil || len(differences) != 0 {
		t.Errorf("what is later than all of the source counts: %q, %v", differences, err)
	}
	to.load("tags", "a", `{"name":"x"}`)
	e.load("tags", "a", `{"name":"b"}`)
	_, err := e.archive(to)
	if _, refused := errors.AsType[*driver.LoadError](err); !refused || !strings.Contains(err.Error(), "something else was written or imported into it") {
		t.Errorf("got %v", err)
	}
}

// unsteady is an engine that fails in the middle of a load, after a prefix of each document's
// versions, when it is asked to, and whose clock is behind.
type unsteady struct {
	driver.Engine
	fail   bool
	settle func() error
}

func (u *unsteady) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	if !u.fail {
		return u.Engine.Load(ctx, vs)
	}
	u.fail = false
	var some []driver.Version
	n := map[string]int{}
	for i, v := range vs {
		if n[v.Key]++; n[v.Key] <= i%3 && n[v.Key] == 1 {
			some = append(some, v)
		}
	}
	if _, err := u.Engine.Load(ctx, some); err != nil {
		return driver.LoadResult{}, err
	}
	return driver.LoadResult{}, driver.Errorf(driver.CodeUnavailable, "the connection broke")
}

func (u *unsteady) Settle(ctx context.Context, at driver.Instant) error {
	if u.settle != nil {
		return u.settle()
	}
	return u.Engine.Settle(ctx, at)
}

func TestArchiveAfterAFailure(t *testing.T) {
	var u *unsteady
	e, to := newEnv(t), newTarget(t, func(inner driver.Engine) driver.Engine {
		u = &unsteady{Engine: inner}
		return u
	})
	for i := range 40 {
		e.load("tags", fmt.Sprint(i%7), fmt.Sprintf(`{"name":"%d"}`, i))
	}
	u.fail = true
	if _, err := e.archive(to); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Fatalf("got %v", err)
	}
	if n := len(to.dump()); n == 0 || n == 40 {
		t.Fatalf("%d versions are there: it did not fail in the middle", n)
	}
	must(e.archive(to))(t)
	e.wantSame(to)
}

// A target whose clock is a little behind is waited for, and one that is far behind is said to be.
func TestArchiveBehindItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u *unsteady
		e, to := newEnv(t), newEnvOver(t, func(inner driver.Engine) driver.Engine {
			u = &unsteady{Engine: inner}
			return u
		})
		e.load("tags", "a", `{"name":"a"}`)
		if _, err := e.archive(to); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "the clock of the source is ahead") {
			t.Errorf("got %v", err)
		}
		asked := 0
		u.settle = func() error {
			if asked++; asked == 3 {
				to.clock.advance(time.Hour)
				return nil
			}
			return driver.Errorf(driver.CodeInvalid, "in the future")
		}
		must(e.archive(to))(t)
		e.wantSame(to)
	})
}

// Two that archive into one store do the same work, and none hinders the other.
func TestTwoArchivesAtOnce(t *testing.T) {
	const most = 16 << 10 // versions after which it is noted how far they are
	e, to := newEnv(t), newTarget(t, nil)
	at, n := e.clock.advance(time.Hour), 0
	load := func() {
		t.Helper()
		vs := make([]driver.Version, most+1)
		for i := range vs {
			n++
			vs[i] = driver.Version{Collection: "tags", Key: fmt.Sprint(i % 1000), RecordedAt: at - 1e9 + driver.Instant(n), Author: "a", Data: []byte(`{"name":"` + fmt.Sprint(n) + `"}`)}
		}
		must(e.store.Load(t.Context(), vs))(t)
	}
	var both [2]*storage.Archive
	for i := range both {
		both[i] = must(storage.NewArchive(t.Context(), e.store, to.store))(t)
	}
	for range 2 {
		load()
		if first, second := must(both[0].Follow(t.Context()))(t), must(both[1].Follow(t.Context()))(t); first != most+1 || second != 0 {
			t.Errorf("they have added %d and %d versions", first, second)
		}
	}
	e.wantSame(to)
	if added := must(e.archive(to))(t); added != 0 {
		t.Errorf("%d versions are added again", added)
	}
}

// logged notes from where logs were read.
type logged struct {
	driver.Engine
	from []driver.Instant
}

func (l *logged) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	l.from = append(l.from, q.From)
	return l.Engine.Log(ctx, q)
}

// An archive goes on not far before where it ended, unless the source is another one, or has
// another past.
func TestArchiveGoesOn(t *testing.T) {
	var l *logged
	e, to := newEnvOver(t, func(inner driver.Engine) driver.Engine {
		l = &logged{Engine: inner}
		return l
	}), newTarget(t, nil)
	at := e.clock.advance(time.Hour)
	load := func(e *env, from, n int) {
		t.Helper()
		vs := make([]driver.Version, n)
		for i := range vs {
			vs[i] = driver.Version{Collection: "tags", Key: fmt.Sprint((from + i) % 1000), RecordedAt: at - 1e9 + driver.Instant((from+i)/3), Author: "a", Data: []byte(`{"name":"` + fmt.Sprint(from+i) + `"}`)}
		}
		must(e.store.Load(t.Context(), vs))(t)
	}
	const most = 16 << 10 // versions that are loaded at once
	load(e, 0, most+100)
	must(e.archive(to))(t)
	e.wantSame(to)
	must(e.archive(to))(t)
	if from := l.from[len(l.from)-1]; from < at-1e9+most/3-1 {
		t.Errorf("it went on at %v", from)
	}
	load(e, most+100, 1) // a load, which may be of the past
	must(e.archive(to))(t)
	if from := l.from[len(l.from)-1]; from != 0 {
		t.Errorf("after a load it went on at %v", from)
	}
	e.wantSame(to)
	other := newEnv(t)
	other.clock.advance(2 * time.Hour)
	other.load("tags", "other", `{"name":"other"}`)
	if added := must(other.archive(to))(t); added != 1 {
		t.Errorf("of another source %d versions were added", added)
	}
	var position []byte
	for v, err := range to.store.Engine().Log(t.Context(), &driver.LogQuery{Collections: []string{"asof_archive"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(v.Data, position) || v.Number > 3 { // the first says that the stores are two
			t.Errorf("version %d of the position: %s", v.Number, v.Data)
		}
		position = v.Data
	}
	if position == nil {
		t.Error("there is no position")
	}
}

// An archive of a store in itself, opened under another name, is refused, whether or not the store was
// an archive before.
func TestArchiveInItself(t *testing.T) {
	e := newEnv(t)
	e.load("tags", "a", `{"name":"a"}`)
	for range 2 {
		if _, err := storage.NewArchive(t.Context(), e.store, e.store); driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), "the archive is the store itself") {
			t.Errorf("in itself: %v", err)
		}
	}
	to := newTarget(t, nil)
	for range 2 {
		if _, err := e.archive(to); err != nil {
			t.Error(err)
		}
	}
	e.wantSame(to)
}
