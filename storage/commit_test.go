package storage_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// given is the input of a change, as the generator makes it.
type given []storage.Change

func (g given) Given() []storage.Change { return g }

func (e *env) change(t string, input any) given {
	e.t.Helper()
	for _, typ := range e.store.Types() {
		if typ.Name == t {
			return given{{Type: typ, Field: "change" + t, Input: input}}
		}
	}
	e.t.Fatalf("no type %s", t)
	return nil
}

func (e *env) newTag(key, name string) given {
	return e.change("Tag", &storage.CreateInput{Key: key, Data: object{"name": name}})
}

func (e *env) rename(key string, expected int, name string) given {
	return e.change("Tag", &storage.UpdateInput{Key: key, ExpectedVersion: expected, Patch: object{"name": name}})
}

func (e *env) commit(ctx context.Context, changes ...given) (any, error) {
	return storage.Commit(ctx, e.store, storage.CommitInput[given]{Changes: changes, Message: ptr("why")})
}

func (e *env) committed(changes ...given) *storage.CommitSuccess {
	e.t.Helper()
	s, ok := must(e.commit(e.as("ann"), changes...))(e.t).(*storage.CommitSuccess)
	if !ok {
		e.t.Fatal("a conflict")
	}
	return s
}

// versionsOf is the ids of the versions in a change group.
func versionsOf(ctx context.Context, t *testing.T, g *storage.ChangeGroup) (ids []string) {
	t.Helper()
	conn, err := g.Versions(ctx, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range conn.Nodes {
		ids = append(ids, d.ID())
	}
	if n := must(conn.TotalCount(ctx))(t); n != len(ids) {
		t.Errorf("%d versions, of %d", len(ids), n)
	}
	return ids
}

func TestCommitIsAllOrNothing(t *testing.T) {
	e := newEnv(t)
	e.create("p", object{"name": "P"})
	e.committed(e.newTag("a", "A"), e.newTag("b", "B"))
	before := e.begin()
	s := e.committed(
		e.rename("a", 1, "A2"),
		e.change("Tag", &storage.DeleteInput{Key: "b", ExpectedVersion: 1}),
		e.change("Project", &storage.UpdateInput{Key: "p", ExpectedVersion: 1, Patch: object{"tags": []any{"a", "c"}}}),
		e.newTag("c", "C"),
	)
	at := s.ChangeGroup.RecordedAt()
	for i, r := range s.Results {
		if !r.Changed || r.Merged || r.Version != []int{2, 2, 2, 1}[i] || (r.DeletedID != nil) != (i == 1) {
			t.Errorf("%d: %+v", i, r)
		}
		if info := r.Document.VersionInfo(); i != 1 && (info.RecordedAt() != at || *info.Message() != "why" || *info.ChangeGroup() != s.ChangeGroup.ID()) {
			t.Errorf("%d: %+v", i, info)
		}
		if len(must(r.Changes())(t)) == 0 {
			t.Errorf("%d: no changes", i)
		}
	}
	ctx := e.begin()
	g := must(e.store.ChangeGroup(ctx, s.ChangeGroup.ID()))(t)
	want := []string{"Tag:c@1", "Tag:b@2", "Tag:a@2", "Project:p@2"}
	if diff := cmp.Diff(want, versionsOf(ctx, t, g)); diff != "" {
		t.Error(diff)
	}
	if g.RecordedAt() != at || g.Author().ID != "ann" || *g.Message() != "why" {
		t.Errorf("%s, %v, %v", g.RecordedAt(), g.Author(), g.Message())
	}
	changes := must(g.Changes(ctx, ptr(2), nil, nil, nil))(t)
	if diff := cmp.Diff([]string{`ADD /name -> "C"`, `REMOVE /name "B"`}, lines(changes.Nodes)); diff != "" || !changes.PageInfo.HasNextPage {
		t.Error(diff)
	}
	next := must(g.Changes(ctx, ptr(9), changes.PageInfo.EndCursor(), nil, nil))(t)
	if diff := cmp.Diff([]string{`REPLACE /name "A" -> "A2"`, `ADD /tags -> ["a","c"]`}, lines(next.Nodes)); diff != "" {
		t.Error(diff)
	}
	// Before, there was nothing of it; and of what is written later nothing shows in it.
	if g := must(e.store.ChangeGroup(before, s.ChangeGroup.ID()))(t); g != nil {
		t.Error("the change group was there before")
	}
	e.committed(e.rename("a", 2, "A3"))
	if got := versionsOf(e.begin(), t, g); !slices.Equal(got, want) {
		t.Errorf("later: %q", got)
	}
	if g := must(e.store.ChangeGroup(e.begin(), "unknown"))(t); g != nil {
		t.Error("there is an unknown change group")
	}
}

// spans notes how much time logs are about.
type spans struct {
	driver.Engine
	spans []time.Duration
}

func (s *spans) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	s.spans = append(s.spans, q.To.Time().Sub(q.From.Time()))
	return s.Engine.Log(ctx, q)
}

// A group that asof wrote is looked for where its id says that it was written; one that was
// imported with such an id is found all the same.
func TestChangeGroupsAreFoundByTime(t *testing.T) {
	engine := &spans{}
	e := newEnvOver(t, func(inner driver.Engine) driver.Engine {
		engine.Engine = inner
		return engine
	})
	for i := range 3 {
		e.committed(e.newTag(fmt.Sprint(i), "A"))
		e.clock.advance(time.Hour)
	}
	id := e.committed(e.newTag("a", "A"), e.newTag("b", "B")).ChangeGroup.ID()
	e.clock.advance(time.Hour)
	e.committed(e.newTag("z", "Z"))
	engine.spans = nil
	if g := must(e.store.ChangeGroup(e.begin(), id))(t); g == nil || g.ID() != id {
		t.Fatal("the group is not found")
	}
	if s := engine.spans; len(s) != 1 || s[0] <= 0 || s[0] >= time.Hour {
		t.Errorf("it was looked for in %v", s)
	}
	foreign := must(uuid.NewV7())(t).String()
	at := e.clock.advance(time.Hour)
	if _, err := e.store.Load(t.Context(), []driver.Version{{Collection: "tags", Key: "i", RecordedAt: at, Author: "importer", Group: foreign, Data: []byte(`{"name":"I"}`)}}); err != nil {
		t.Fatal(err)
	}
	ctx := e.begin()
	if g := must(e.store.ChangeGroup(ctx, foreign))(t); g == nil || !slices.Equal(versionsOf(ctx, t, g), []string{"Tag:i@1"}) {
		t.Error("the imported group is not found")
	}
}

// A conflict names all documents that lost, also where somebody was faster only when
// everything had been read.
func TestCommitNamesEveryConflict(t *testing.T) {
	e := newEnv(t)
	e.committed(e.newTag("a", "A"), e.newTag("b", "B"), e.newTag("c", "C"))
	lost := func(want []storage.Conflict[*tag], changes ...given) {
		t.Helper()
		k, ok := must(e.commit(e.begin(), changes...))(t).(*storage.CommitConflict)
		if !ok || len(k.Conflicts) != len(want) || !strings.Contains(k.Message, fmt.Sprintf("%d of %d", len(want), len(changes))) {
			t.Fatalf("%+v", k)
		}
		for i, w := range want {
			c := k.Conflicts[i].(*storage.Conflict[*tag])
			if c.Key != w.Key || c.ExpectedVersion != w.ExpectedVersion || c.ActualVersion != w.ActualVersion || c.Current == nil {
				t.Errorf("%+v, want %+v", c, w)
			}
		}
	}
	e.engine.beforeCommit = func() {
		_ = must(e.tags.Update(e.begin(), storage.UpdateInput{Key: "b", ExpectedVersion: 1, Patch: object{"name": "late"}}))(t)
		_ = must(e.tags.Create(e.begin(), storage.CreateInput{Key: "d", Data: object{"name": "late"}}))(t)
	}
	b, d := storage.Conflict[*tag]{Key: "b", ExpectedVersion: 1, ActualVersion: 2}, storage.Conflict[*tag]{Key: "d", ActualVersion: 1}
	lost([]storage.Conflict[*tag]{b, d}, e.rename("a", 1, "A2"), e.rename("b", 1, "B2"), e.newTag("d", "D"))
	c := storage.Conflict[*tag]{Key: "c", ExpectedVersion: 7, ActualVersion: 1}
	lost([]storage.Conflict[*tag]{b, c, d}, e.rename("a", 1, "A2"), e.rename("b", 1, "B2"), e.rename("c", 7, "C2"), e.newTag("d", "D"))
	for _, key := range []string{"a", "c"} {
		if d := must(e.tags.Get(e.begin(), key, nil, nil))(t); d.Version() != 1 {
			t.Errorf("%s is at version %d", key, d.Version())
		}
	}
}

// onGet is an engine that does something before each read.
type onGet struct {
	driver.Engine
	do func(key string)
}

func (g *onGet) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if g.do != nil {
		g.do(refs[0].Key)
	}
	return g.Engine.Get(ctx, collection, refs, fields)
}

// A commit that others make while conflicts are looked for shows in all of its documents.
func TestConflictsAreOfOneState(t *testing.T) {
	engine := &onGet{}
	e := newEnvOver(t, func(inner driver.Engine) driver.Engine {
		engine.Engine = inner
		return engine
	})
	e.committed(e.newTag("a", "A"), e.newTag("b", "B"), e.newTag("c", "C"))
	for when := 1; when < 6; when++ {
		reads, version := 0, must(e.tags.Get(e.begin(), "a", nil, nil))(t).Version()
		engine.do = func(key string) {
			if reads++; reads == when {
				engine.do = nil
				e.committed(e.rename("a", version, fmt.Sprint(when)), e.rename("b", version, fmt.Sprint(when)))
			}
		}
		k, ok := must(e.commit(e.begin(), e.rename("a", version, "A2"), e.rename("b", version, "B2"), e.rename("c", 7, "C2")))(t).(*storage.CommitConflict)
		if !ok || len(k.Conflicts) == 2 {
			t.Errorf("after %d reads: %+v", when, k)
		}
		engine.do = nil
	}
}

// Somebody writes what a commit has read: it merges again, or loses as a whole.
func TestCommitMergesAgain(t *testing.T) {
	e := newEnv(t)
	e.create("p", object{"name": "P"})
	e.committed(e.newTag("a", "A"))
	merge := func(expected int, patch object) given {
		return e.change("Project", &storage.UpdateInput{Key: "p", ExpectedVersion: expected, Patch: patch, OnConflict: ptr(storage.Merge)})
	}
	e.engine.beforeCommit = func() { e.update("ben", "p", 1, object{"stars": 1}) }
	s := e.committed(merge(1, object{"description": "d"}), e.rename("a", 1, "A2"))
	if !s.Results[0].Merged || s.Results[1].Merged || s.Results[0].Version != 3 {
		t.Errorf("%+v, %+v", s.Results[0], s.Results[1])
	}
	e.engine.beforeCommit = func() { e.update("ben", "p", 3, object{"stars": 2}) }
	k, ok := must(e.commit(e.begin(), merge(3, object{"stars": 3}), e.rename("a", 2, "A3")))(t).(*storage.CommitConflict)
	if !ok || len(k.Conflicts) != 1 {
		t.Fatalf("%+v", k)
	}
	if d := must(e.tags.Get(e.begin(), "a", nil, nil))(t); d.Version() != 2 {
		t.Errorf("a is at version %d", d.Version())
	}
}

// What a commit leaves as it is has no new version, but has to be at the expected one when
// the others are written.
func TestCommitComparesWhatItLeaves(t *testing.T) {
	e := newEnv(t)
	e.committed(e.newTag("a", "A"), e.newTag("b", "B"))
	s := e.committed(e.rename("a", 1, "A"), e.rename("b", 1, "B2"))
	if r := s.Results[0]; !s.Changed || r.Changed || r.Version != 1 || len(must(r.Changes())(t)) != 0 || !s.Results[1].Changed {
		t.Errorf("%+v", r)
	}
	if got := versionsOf(e.begin(), t, s.ChangeGroup); !slices.Equal(got, []string{"Tag:b@2"}) {
		t.Errorf("%q", got)
	}
	e.engine.beforeCommit = func() {
		_ = must(e.tags.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "late"}}))(t)
	}
	k, ok := must(e.commit(e.begin(), e.rename("a", 1, "A"), e.rename("b", 2, "B3")))(t).(*storage.CommitConflict)
	if !ok || len(k.Conflicts) != 1 || k.Conflicts[0].(*storage.Conflict[*tag]).Key != "a" {
		t.Fatalf("%+v", k)
	}
	if s := e.committed(e.rename("a", 2, "late"), e.rename("b", 2, "B2")); s.Changed || s.ChangeGroup != nil {
		t.Errorf("%+v", s)
	}
}

// What is wrong with one change is said with its place, and nothing is written.
func TestCommitRefuses(t *testing.T) {
	e := newEnv(t)
	e.committed(e.newTag("a", "A"))
	before := must(e.engine.Stats(t.Context()))(t)
	ok := e.newTag("new", "New")
	many := make([]given, 10_000)
	for i := range many {
		many[i] = e.newTag(strconv.Itoa(i), "x")
	}
	long := make([]given, 4) // what is written is an entry of an index for each tag
	for i := range long {
		long[i] = e.change("Project", &storage.CreateInput{Key: strconv.Itoa(i), Data: object{"name": "P", "tags": slices.Repeat([]any{"a"}, 900)}})
	}
	large := make([]given, 5)
	for i := range large {
		large[i] = e.newTag(strconv.Itoa(i), strings.Repeat("x", 900<<10))
	}
	for _, c := range []struct {
		changes []given
		parts   []string
	}{
		{large, []string{"input.changes: the documents have more than 3145728 bytes together"}},
		{nil, []string{"input.changes: a commit has at least one change"}},
		{many, []string{"input.changes: 10000 changes are given; a commit has at most 1000"}},
		{long, []string{"input.changes: the lists and fields with @index that are changed have more than 2000 elements together"}},
		{[]given{ok, {}}, []string{"input.changes[1]: ", "not 0"}},
		{[]given{append(slices.Clone(ok), ok...)}, []string{"input.changes[0]: ", "not 2"}},
		{[]given{ok, e.newTag("new", "Again")}, []string{`input.changes[1].changeTag: Tag "new" is changed by input.changes[0] already`}},
		{[]given{ok, e.newTag("", "A")}, []string{"input.changes[1].changeTag.key: the key is empty"}},
		{[]given{ok, e.rename("a", 0, "A")}, []string{"input.changes[1].changeTag.expectedVersion: 0"}},
		{[]given{ok, e.change("Tag", &storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": nil}})}, []string{"input.changes[1].changeTag.patch.name: null"}},
		{[]given{ok, e.change("Tag", &storage.CreateInput{Key: "b", Data: object{}})}, []string{"input.changes[1].changeTag.data.name: the field is required"}},
		{[]given{ok, e.change("Tag", &storage.CreateInput{Key: "b", Data: object{"name": "B"}, Message: ptr("x")})}, []string{"input.changes[1].changeTag.message: "}},
		{[]given{ok, e.change("Tag", &storage.RestoreInput{Key: "a", ExpectedVersion: 1})}, []string{"input.changes[1].changeTag.to: "}},
	} {
		_, err := e.commit(e.begin(), c.changes...)
		wantError(t, err, fault.CodeBadUserInput, c.parts...)
	}
	_, err := e.commit(e.begin(), ok, e.change("Tag", &storage.RestoreInput{Key: "a", ExpectedVersion: 1, To: &storage.VersionRef{Version: ptr(9)}}))
	wantError(t, err, fault.CodeVersionNotFound, "input.changes[1].changeTag")
	_, err = storage.Commit(e.begin(), e.store, storage.CommitInput[given]{Changes: []given{ok}, Message: ptr(strings.Repeat("x", 17<<10))})
	wantError(t, err, fault.CodeBadUserInput, "input.message")
	_, err = storage.Commit(e.begin(), e.store, storage.CommitInput[given]{Changes: many[:300], Message: ptr(strings.Repeat("x", 16<<10))})
	wantError(t, err, fault.CodeBadUserInput, "input.changes: the documents have more than 3145728 bytes together", "and the message with each")
	if after := must(e.engine.Stats(t.Context()))(t); after.Versions != before.Versions {
		t.Errorf("%d versions, before %d", after.Versions, before.Versions)
	}
}

// single is an engine that commits one write at a time.
type single struct{ driver.Engine }

func (single) MaxWrites() int { return 1 }

func TestCommitUnsupported(t *testing.T) {
	e := newEnvOver(t, func(inner driver.Engine) driver.Engine { return single{inner} })
	_, err := e.commit(e.begin(), e.newTag("a", "A"), e.newTag("b", "B"))
	wantError(t, err, fault.CodeUnsupported, "nothing was written")
	if stats := must(e.engine.Stats(t.Context()))(t); stats.Versions != 0 {
		t.Errorf("%d versions", stats.Versions)
	}
	if s := e.committed(e.newTag("a", "A")); !s.Changed {
		t.Errorf("%+v", s)
	}
}

// Others write without a pause: in the end that is an error, with nothing written.
func TestCommitGivesUp(t *testing.T) {
	e := newEnv(t)
	e.engine.commitErr = &driver.ConflictError{Lost: []driver.Conflict{{Collection: "tags", Key: "a"}}}
	_, err := e.commit(e.begin(), e.newTag("a", "A"), e.newTag("b", "B"))
	wantError(t, err, fault.CodeUnavailable, "nothing was written")
	e.engine.commitErr = errors.New("the disk is gone")
	_, err = e.commit(e.begin(), e.newTag("a", "A"), e.newTag("b", "B"))
	wantError(t, err, fault.CodeInternal)
}

// Two documents that are always written together are the same for every reader, at every
// instant, and in the end all commits that were acknowledged are there.
func TestCommitsThatRace(t *testing.T) {
	const writers, rounds = 4, 20
	e := newEnv(t)
	e.committed(e.newTag("a", "0"), e.newTag("b", "0"))
	var group sync.WaitGroup
	acknowledged := make([][]string, writers)
	for w := range writers {
		group.Go(func() {
			for round := range rounds {
				ctx, err := e.store.Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				a, b := must(e.tags.Get(ctx, "a", nil, nil))(t), must(e.tags.Get(ctx, "b", nil, nil))(t)
				if x, y := must(a.Object.String(0))(t), must(b.Object.String(0))(t); x != y || a.Version() != b.Version() {
					t.Errorf("a is %q, version %d, and b %q, version %d", x, a.Version(), y, b.Version())
				}
				name := fmt.Sprintf("%d by %d", round, w)
				changes := []given{e.rename("a", a.Version(), name), e.rename("b", b.Version(), name)}
				if w%2 == 1 {
					slices.Reverse(changes)
				}
				res, err := e.commit(ctx, changes...)
				switch res := res.(type) {
				case *storage.CommitSuccess:
					acknowledged[w] = append(acknowledged[w], name)
				case *storage.CommitConflict:
					if len(res.Conflicts) != 2 {
						t.Errorf("%d conflicts: %s", len(res.Conflicts), res.Message)
					}
				default:
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	there := map[string]int{}
	for v, err := range e.engine.Log(t.Context(), &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		there[string(v.Data)]++
	}
	for _, names := range acknowledged {
		for _, name := range names {
			if n := there[fmt.Sprintf(`{"name":%q}`, name)]; n != 2 {
				t.Errorf("%q is there %d times", name, n)
			}
		}
	}
	if len(there) < rounds/2 {
		t.Errorf("only %d states", len(there))
	}
}

// A commit has half of its time until it writes, and what it tells of conflicts has all of it.
func TestCommitsEndWithTheirTime(t *testing.T) {
	spent := 0.
	e := newEnvOf(t, fixtureTypes(), nil, storage.WithSpent(func(_ context.Context, share float64) bool { return spent >= share }), storage.WithLimits(storage.Limits{Details: 2}))
	e.committed(e.newTag("a", "1"), e.newTag("b", "1"))
	e.committed(e.rename("a", 1, "2"), e.rename("b", 1, "2"))
	spent = .5
	for _, expected := range []int{1, 2} { // in conflict, or not
		_, err := e.commit(e.begin(), e.rename("a", expected, "3"), e.rename("b", expected, "3"))
		wantError(t, err, fault.CodeUnavailable, "input.changes[0].changeTag and those before it took half of the time", "nothing was written")
	}
	lost := must(e.commit(e.begin(), e.rename("a", 1, "3")))(t).(*storage.CommitConflict)
	since := func(ctx context.Context) ([]*storage.FieldChange, error) {
		return lost.Conflicts[0].(interface {
			ChangesSince(ctx context.Context) ([]*storage.FieldChange, error)
		}).ChangesSince(ctx)
	}
	ctx := e.begin()
	for range 2 {
		if got := must(since(ctx))(t); len(got) != 1 {
			t.Errorf("%d changes", len(got))
		}
	}
	wantError(t, second(since(ctx)), fault.CodeQueryTooComplex, "more than 2 values")
	logs := e.engine.logs.Load()
	wantError(t, second(since(ctx)), fault.CodeQueryTooComplex, "more than 2 values")
	if e.engine.logs.Load() != logs {
		t.Error("what is refused was compared")
	}
	spent = 1
	wantError(t, second(since(e.begin())), fault.CodeUnavailable, "ask for the changelog")
}
