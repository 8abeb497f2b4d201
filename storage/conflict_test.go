package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

func TestConflictSaysEverything(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A", "tags": []any{"x"}, "stars": 1, "currentRelease": object{"tag": "v1"}})
	e.update("bob", "a", 1, object{"name": "B", "stars": 2})
	e.update("eve", "a", 2, object{"currentRelease": object{"tag": "v2"}, "tags": []any{"y", "x"}})
	patch := object{"name": "C", "stars": 2, "websiteUrl": "w", "tags": []any{}, "currentRelease": object{"tag": "v3", "publishedAt": "2026-01-01"}}
	ctx := e.as("ann")
	c := asConflict(t, must(e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: patch}))(t), nil)
	if c.ExpectedVersion != 1 || c.ActualVersion != 3 || c.Mergeable || must(c.Current.String(fName))(t) != "B" || must(c.Base.String(fName))(t) != "A" || c.Base.ID() != "Project:a@1" || c.Current.ID() != "Project:a" {
		t.Errorf("%+v", c)
	}
	// Both set stars to 2: that is no conflict.
	if diff := cmp.Diff([]string{"/currentRelease/tag", "/name", "/tags"}, c.OverlappingPaths); diff != "" {
		t.Error(diff)
	}
	var since []string
	for _, change := range must(c.ChangesSince(ctx))(t) {
		since = append(since, fmt.Sprintf("%s v%d by %s", change.Path, change.Version(), change.ChangedBy().ID))
	}
	if diff := cmp.Diff([]string{"/name v2 by bob", "/stars v2 by bob", "/tags/0 v3 by eve", "/currentRelease/tag v3 by eve"}, since); diff != "" {
		t.Error(diff)
	}
	c = asConflict(t, must(e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: patch, OnConflict: ptr(storage.Merge)}))(t), nil)
	if c.Mergeable || e.get("a").Version() != 3 {
		t.Error("overlapping paths were merged")
	}
	if want := `Project "a" is at version 3, not at version 1, and the changes since overlap at /currentRelease/tag, /name, /tags`; c.Message != want {
		t.Errorf("the message is %s", c.Message)
	}
	c = asConflict(t, must(e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 9, Patch: object{}}))(t), nil)
	if c.ActualVersion != 3 || c.Base != nil || c.Mergeable || len(must(c.ChangesSince(ctx))(t)) != 0 {
		t.Errorf("ahead: %+v", c)
	}
}

func TestMerge(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A", "tags": []any{"x"}, "currentRelease": object{"tag": "v1"}})
	e.update("bob", "a", 1, object{"name": "B", "currentRelease": object{"publishedAt": "2026-01-01"}})
	patch := object{"stars": 1, "currentRelease": object{"tag": "v2"}}
	c := asConflict(t, must(e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: patch}))(t), nil)
	if !c.Mergeable || len(c.OverlappingPaths) != 0 {
		t.Errorf("%+v", c)
	}
	// Somebody writes between the read and the commit, twice.
	e.engine.beforeCommit = func() {
		e.update("eve", "a", 2, object{"websiteUrl": "w"})
		e.engine.beforeCommit = func() { e.update("eve", "a", 3, object{"rating": 1}) }
	}
	s := asSuccess(t, must(e.projects.Update(e.as("ann"), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: patch, OnConflict: ptr(storage.Merge)}))(t), nil)
	if !s.Merged || !s.Changed || s.Version != 5 {
		t.Errorf("%+v", s)
	}
	want := `{"name":"B","tags":["x"],"archived":false,"current_release":{"tag":"v2","published_at":"2026-01-01"},"website_url":"w","rating":1,"stargazers_count":1}`
	if diff := cmp.Diff(want, e.stored("a")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{`ADD /stars -> 1`, `REPLACE /currentRelease/tag "v1" -> "v2"`}, lines(must(s.Changes())(t))); diff != "" {
		t.Error(diff)
	}
}

// The engine decides: a write that comes between our read and our commit turns
// the commit into a conflict, with nothing written.
func TestCompareAndSwapIsTheEngines(t *testing.T) {
	for name, write := range map[string]func(e *env) (any, error){
		"update": func(e *env) (any, error) {
			return e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "mine"}})
		},
		"delete": func(e *env) (any, error) {
			return e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 1})
		},
		"restore": func(e *env) (any, error) {
			return e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 1, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{"/name"}})
		},
		"create": func(e *env) (any, error) {
			return e.projects.Create(e.begin(), storage.CreateInput{Key: "b", Data: object{"name": "mine"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.create("a", object{"name": "A", "tags": []any{}})
			e.engine.beforeCommit = func() {
				e.update("bob", "a", 1, object{"name": "theirs"})
				e.create("b", object{"name": "theirs"})
			}
			if name == "restore" { // what it restores is not what is there
				e.engine.beforeCommit = nil
				e.update("bob", "a", 1, object{"name": "x"})
				e.engine.beforeCommit = func() { e.update("bob", "a", 2, object{"name": "theirs"}) }
				write = func(e *env) (any, error) {
					return e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}})
				}
			}
			res, err := write(e)
			c := asConflict(t, res, err)
			if must(c.Current.String(fName))(t) != "theirs" || c.ActualVersion != c.Current.Version() {
				t.Errorf("%+v", c)
			}
			if got := must(e.get("a").String(fName))(t); got != "theirs" {
				t.Errorf("the other's write became %q", got)
			}
		})
	}
}

// remembering is an engine that remembers the versions that it was told to.
type remembering struct {
	driver.Engine
	known *driver.Version
}

func (r *remembering) Remembered(_ context.Context, collection, key string, number int64) (*driver.Version, error) {
	if v := r.known; v != nil && v.Collection == collection && v.Key == key && v.Number == number {
		return v, nil
	}
	return nil, nil
}

// A write on a version that the engine remembers reads nothing; it says the same
// as any other, also where the version is not the last one any more.
func TestWritesOnWhatIsRemembered(t *testing.T) {
	update := func(patch object, policy storage.ConflictPolicy) func(*env) (any, error) {
		return func(e *env) (any, error) {
			return e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: patch, OnConflict: &policy})
		}
	}
	for _, c := range []struct {
		name   string
		before func(e *env)
		write  func(e *env) (any, error)
		gets   int64 // at least that many, if not 0
		want   func(t *testing.T, result any, err error)
	}{
		{"update", nil, update(object{"name": "B"}, storage.Reject), 0, func(t *testing.T, result any, err error) {
			if s := asSuccess(t, result, err); s.Version != 2 || !s.Changed || s.Merged {
				t.Errorf("%+v", s)
			}
		}},
		{"delete", nil, func(e *env) (any, error) {
			return e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 1})
		}, 0, func(t *testing.T, result any, err error) {
			if s := asSuccess(t, result, err); s.Version != 2 || must(s.Document.String(fName))(t) != "A" {
				t.Errorf("%+v", s)
			}
		}},
		{"nothing to change", nil, update(object{"name": "A"}, storage.Reject), 1, func(t *testing.T, result any, err error) {
			if s := asSuccess(t, result, err); s.Version != 1 || s.Changed {
				t.Errorf("%+v", s)
			}
		}},
		{"nothing to change any more", func(e *env) { e.update("bob", "a", 1, object{"name": "B"}) }, update(object{"name": "A"}, storage.Reject), 1, func(t *testing.T, result any, err error) {
			if k := asConflict(t, result, err); k.ActualVersion != 2 {
				t.Errorf("%+v", k)
			}
		}},
		{"a conflict", func(e *env) { e.update("bob", "a", 1, object{"name": "B"}) }, update(object{"name": "C"}, storage.Reject), 1, func(t *testing.T, result any, err error) {
			if k := asConflict(t, result, err); k.ActualVersion != 2 || must(k.Current.String(fName))(t) != "B" {
				t.Errorf("%+v", k)
			}
		}},
		{"a merge", func(e *env) { e.update("bob", "a", 1, object{"name": "B"}) }, update(object{"stars": 5}, storage.Merge), 1, func(t *testing.T, result any, err error) {
			if s := asSuccess(t, result, err); s.Version != 3 || !s.Merged || must(s.Document.String(fName))(t) != "B" {
				t.Errorf("%+v", s)
			}
		}},
		{"deleted since", func(e *env) {
			if _, err := e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 1}); err != nil {
				e.t.Fatal(err)
			}
		}, func(e *env) (any, error) {
			return e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 1})
		}, 1, func(t *testing.T, result any, err error) {
			if k := asConflict(t, result, err); k.ActualVersion != 2 {
				t.Errorf("%+v", k)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &remembering{}
			e := newEnvOver(t, func(engine driver.Engine) driver.Engine {
				r.Engine = engine
				return r
			})
			e.create("a", object{"name": "A", "tags": []any{}})
			found, err := e.engine.Get(e.t.Context(), "software", []driver.Ref{{Key: "a", At: driver.Forever}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				c.before(e)
			}
			r.known = found[0]
			e.engine.gets.Store(0)
			result, err := c.write(e)
			c.want(t, result, err)
			if gets := e.engine.gets.Load(); (gets == 0) != (c.gets == 0) {
				t.Errorf("%d reads, want at least %d, and none where that is none", gets, c.gets)
			}
		})
	}
}

// settling notes the instants that it was asked to settle.
type settling struct {
	driver.Engine
	at    []driver.Instant
	fails error
}

func (s *settling) Settle(ctx context.Context, at driver.Instant) error {
	s.at = append(s.at, at)
	if s.fails != nil {
		return s.fails
	}
	return s.Engine.Settle(ctx, at)
}

// What a mutation shows of another's write is read at an instant that is
// settled, and the operation says so.
func TestAConflictIsShownAtASettledInstant(t *testing.T) {
	for name, write := range map[string]func(e *env, ctx context.Context) (any, error){
		"conflict": func(e *env, ctx context.Context) (any, error) {
			return e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "mine"}})
		},
		"nothing changed": func(e *env, ctx context.Context) (any, error) {
			return e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"stars": 7}, OnConflict: ptr(storage.Merge)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.create("a", object{"name": "A", "tags": []any{}, "stars": 1})
			ctx := e.begin()
			theirs := e.update("bob", "a", 1, object{"name": "theirs", "stars": 7}).Document.VersionInfo().RecordedAt()
			s := &settling{Engine: e.engine.Engine}
			e.engine.Engine = s
			if _, err := write(e, ctx); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(s.at, theirs) {
				t.Errorf("%s was not settled, only %v", theirs, s.at)
			}
			if at, _ := storage.InstantOf(ctx); at != theirs {
				t.Errorf("the operation says %s, and shows what was recorded at %s", at, theirs)
			}
		})
	}
}

// A server that was stopped may read what another has written before its own clock
// is there: nothing in that is the client's mistake.
func TestAConflictThatIsAheadOfTheClock(t *testing.T) {
	for name, write := range map[string]func(e *env, ctx context.Context) (any, error){
		"create": func(e *env, ctx context.Context) (any, error) {
			return e.projects.Create(ctx, storage.CreateInput{Key: "a", Data: object{"name": "mine"}})
		},
		"update": func(e *env, ctx context.Context) (any, error) {
			return e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "mine"}})
		},
		"update to what is there": func(e *env, ctx context.Context) (any, error) {
			return e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"stars": 7}, OnConflict: ptr(storage.Merge)})
		},
		"delete": func(e *env, ctx context.Context) (any, error) {
			return e.projects.Delete(ctx, storage.DeleteInput{Key: "a", ExpectedVersion: 1})
		},
		"restore": func(e *env, ctx context.Context) (any, error) {
			return e.projects.Restore(ctx, storage.RestoreInput{Key: "a", ExpectedVersion: 1, To: &storage.VersionRef{Version: ptr(1)}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.create("a", object{"name": "A", "tags": []any{}, "stars": 1})
			ctx := e.begin()
			e.update("bob", "a", 1, object{"name": "theirs", "stars": 7})
			e.engine.Engine = &settling{Engine: e.engine.Engine, fails: driver.Errorf(driver.CodeInvalid, "it is in the future")}
			result, err := write(e, ctx)
			refused := new(fault.Error)
			if !errors.As(err, &refused) || refused.Code != fault.CodeUnavailable || !strings.HasSuffix(refused.Message, "; nothing was written") {
				t.Errorf("%v, %v; want %s, and that nothing was written", result, err, fault.CodeUnavailable)
			}
			if v := e.get("a").Version(); v != 2 {
				t.Errorf("the document is at version %d", v)
			}
		})
	}
}

func TestConcurrentUpdatesLoseNothing(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A", "tags": []any{}, "stars": 0})
	var wg sync.WaitGroup
	ctx := e.begin()
	for range 4 {
		wg.Go(func() {
			for done := 0; done < 25; {
				d, err := e.projects.Get(t.Context(), "a", nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				stars, _ := d.OptInt(fStars)
				res, err := e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: d.Version(), Patch: object{"stars": *stars + 1}})
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok := res.(*storage.Success[*project]); ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	if d := e.get("a"); *must(d.OptInt(fStars))(t) != 100 || d.Version() != 101 {
		t.Errorf("stars %d in version %d", *must(d.OptInt(fStars))(t), d.Version())
	}
}
