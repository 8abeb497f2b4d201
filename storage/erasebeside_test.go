package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// rewriting is an engine that asks before each version that is rewritten.
type rewriting struct {
	driver.Engine
	before func(ctx context.Context, collection string, v *driver.Version) error
}

func (r *rewriting) Rewrite(ctx context.Context, c, key string, vs []driver.Version) error {
	for i := range vs {
		if r.before != nil {
			if err := r.before(ctx, c, &vs[i]); err != nil {
				return err
			}
		}
		if err := r.Engine.Rewrite(ctx, c, key, vs[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// newRewriting is a store with types that can be erased, over such an engine.
func newRewriting(t *testing.T, types []*record.Type) (*env, *rewriting) {
	t.Helper()
	r := &rewriting{}
	return newEnvOf(t, types, func(engine driver.Engine) driver.Engine {
		r.Engine = engine
		return r
	}), r
}

var errKilled = driver.Errorf(driver.CodeUnavailable, "killed")

func killed(context.Context, string, *driver.Version) error { return errKilled }

// notes is how many erasures are noted.
func (e *env) notes() (n int) {
	e.t.Helper()
	for _, v := range must(e.engine.Query(e.t.Context(), &driver.Query{Collection: "asof_retention", At: driver.Forever}))(e.t) {
		if strings.Contains(string(v.Data), `"erase"`) {
			n++
		}
	}
	return n
}

// While an erasure is unfinished, nothing brings a value back; and what the operation may read does not end it.
func TestRestoreBesideErasing(t *testing.T) {
	e, r := newRewriting(t, erasableTypes())
	e.secretHistory()
	type key struct{}
	r.before = func(ctx context.Context, _ string, _ *driver.Version) error {
		if ctx.Value(key{}) != nil {
			t.Error("versions are rewritten at the expense of the operation")
		}
		return errKilled
	}
	_, err := e.projects.Erase(context.WithValue(e.by("eve", nil, "privacy"), key{}, true), storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r", Paths: secretPaths})
	wantError(t, err, fault.CodeUnavailable, "goes on")
	back := storage.RestoreInput{Key: "a", ExpectedVersion: 8, To: &storage.VersionRef{Version: ptr(3)}, Paths: []string{"/description"}}
	_, err = e.projects.Restore(e.as("ann"), back)
	wantError(t, err, fault.CodeUnavailable, "being erased")
	if done := must(e.projects.Restore(e.as("ann"), storage.RestoreInput{Key: "a", ExpectedVersion: 8, To: &storage.VersionRef{Version: ptr(8)}}))(t).(*storage.Success[*project]); done.Changed {
		t.Error("the current version is another one than itself")
	}
	r.before = nil
	if err := e.store.FinishErasures(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = e.projects.Restore(e.as("ann"), back)
	wantError(t, err, fault.CodeBadUserInput, "was erased")
}

// Where a document as a whole was erased, nothing in its objects is restored, and nothing is lost.
func TestRestoreInWhatWasErased(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	e.secretHistory()
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r", Paths: []string{"/currentRelease"}}))(t)
	e.update("ann", "a", 8, object{"currentRelease": object{"tag": "new"}})
	_, err := e.projects.Restore(e.as("ann"), storage.RestoreInput{Key: "a", ExpectedVersion: 9, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{"/currentRelease/tag"}})
	wantError(t, err, fault.CodeBadUserInput, "/currentRelease was erased")
}

// A draft that is started while its document is erased ends, with what it had read.
func TestDraftBesideErasing(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	e.secretHistory()
	bob := e.as("bob")
	e.engine.beforeCommit = func() {
		must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r", Paths: append([]string{}, secretPaths...)}))(t)
	}
	must(e.projects.StartDraft(bob, storage.StartDraftInput{Key: "a"}))(t)
	for range 2 {
		if err := e.store.FinishErasures(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, v := range e.versions() {
			if v.Collection == "software.drafts" && strings.Contains(string(v.Data), "secret") {
				t.Errorf("a draft is left: %s", v.Data)
			}
		}
		e.clock.advance(2 * record.Grace)
	}
	kept := e.start("bob", storage.StartDraftInput{Key: "a"})
	if err := e.store.FinishErasures(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ids := e.drafts("bob", nil); !slices.Equal(ids, []string{kept.ID()}) || e.notes() != 0 {
		t.Errorf("there are the drafts %v, and %d notes", ids, e.notes())
	}
}

// One value that two erase at once is one value afterwards.
func TestErasuresOfOneValue(t *testing.T) {
	for after := range 3 {
		e, r := newRewriting(t, erasableTypes())
		e.create("a", object{"name": "n", "description": "secret", "currentRelease": object{"tag": "secret", "notes": []any{"n"}}})
		for i := range 4 {
			e.update("ann", "a", i+1, object{"stars": i})
		}
		n := 0
		r.before = func(context.Context, string, *driver.Version) error {
			if n++; n == after+1 {
				r.before = nil
				must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 6, Reason: "r", Paths: []string{"/currentRelease/tag", "/description"}, Versions: &storage.VersionRange{To: ptr(5)}}))(t)
			}
			return nil
		}
		must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 5, Reason: "r", Paths: []string{"/description", "/currentRelease/tag"}}))(t)
		if e.secrets() != nil {
			t.Error("something is left")
		}
		other := newEnvOf(t, erasableTypes(), nil)
		other.clock.advance(time.Hour)
		if _, err := other.store.Load(t.Context(), e.versions()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e.dump(), other.dump()); diff != "" {
			t.Errorf("after %d versions; a copy is another one: %s", after, diff)
		}
	}
}

// What was hidden by a field stays hidden when that is erased.
func TestErasedFieldsOfRules(t *testing.T) {
	for _, rule := range []string{
		`description != "secret"`, `not description = "secret"`, `not (description = "secret" or stars = 7)`, "description = null", `plan = "FREE"`, `not "secret" in tags`,
		"not (description = null and stars = 7) and description = null",
	} {
		types := erasableTypes()
		types[0].Auth.Rows = rule
		types[0].Fields[fPlan].Default = []byte(`"FREE"`)
		e := newEnvOf(t, types, nil)
		e.load("software", "a", `{"name":"A","description":"secret","tags":["secret"],"plan":"PAID","current_release":{"tag":"secret"}}`)
		e.load("software", "a", `{"name":"A"}`)
		hidden := func() bool {
			e.clock.advance(time.Second)
			vs := must(e.projects.Get(e.begin(), "a", nil, ptr(1)))(t)
			page := must(e.projects.Page(e.begin(), nil, nil, nil, nil, nil, nil, ptr(e.versions()[0].RecordedAt), nil))(t)
			if (vs == nil) != (len(page.Nodes) == 0) {
				t.Errorf("%s: read alone it is %v, in a list there are %d", rule, vs, len(page.Nodes))
			}
			return vs == nil
		}
		if !hidden() {
			t.Fatalf("%s: shows what it should hide", rule)
		}
		must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 2, Reason: "r", Paths: []string{"/description", "/tags", "/plan", "/currentRelease"}}))(t)
		if !hidden() {
			t.Errorf("%s: shows what was hidden until it was erased", rule)
		}
	}
}

// Of what fails, or is not declared any more, nothing else is held up; what was pruned before it was finished is told.
func TestErasuresDoNotHoldUpOthers(t *testing.T) {
	types := erasableTypes()
	types[1].Auth.Erase = []string{"privacy"}
	e, r := newRewriting(t, types)
	r.before = killed
	for _, key := range []string{"a", "b", "c", "d"} {
		e.load("software", key, `{"name":"A","description":"secret"}`)
		_, err := e.erase(storage.EraseInput{Key: key, ExpectedVersion: 1, Reason: "r", Paths: []string{"/description"}})
		wantError(t, err, fault.CodeUnavailable)
	}
	e.load("tags", "t", `{"name":"secret"}`)
	_, err := e.tags.Erase(e.by("eve", nil, "privacy"), storage.EraseInput{Key: "t", ExpectedVersion: 1, Reason: "r"})
	wantError(t, err, fault.CodeUnavailable)
	e.update("ann", "d", 2, object{"stars": 1})
	if err := e.engine.Rewrite(t.Context(), "software", "d", []driver.Version{{Number: 2, Op: driver.OpPruned, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	failing := "a"
	r.before = func(_ context.Context, _ string, v *driver.Version) error {
		if v.Key == failing {
			return errKilled
		}
		return nil
	}
	rest := fixtureTypes()[:1]
	rest[0].Auth.Erase = []string{"privacy"}
	for i, f := range rest[0].Fields {
		if f.Kind == record.KindRef {
			rest[0].Fields[i].Kind, rest[0].Fields[i].Ref = record.KindString, ""
		}
		if f.Object != nil {
			f.Object.Fields[3] = record.Field{Name: "by", Kind: record.KindString}
		}
	}
	store, err := storage.New(r, rest)
	if err != nil {
		t.Fatal(err)
	}
	err = store.FinishErasures(t.Context())
	if err == nil || !strings.Contains(err.Error(), `"d", as version 2 says: that was pruned`) || !strings.Contains(err.Error(), `"a", as version 2 says: killed`) {
		t.Errorf("one fails, and one was pruned: %v", err)
	}
	var left []string
	for _, v := range e.versions() {
		if strings.Contains(string(v.Data), "secret") {
			left = append(left, v.Key)
		}
	}
	if !slices.Equal(left, []string{"a", "d", "t"}) {
		t.Errorf("%v are left", left)
	}
	failing = ""
	if err := store.FinishErasures(t.Context()); err != nil {
		t.Error(err)
	}
	if e.notes() != 4 {
		t.Errorf("%d are noted", e.notes())
	}
}

// What was erased of messages alone is told, also where the seals are gone; what was pruned is not.
func TestErasedBy(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	must(e.projects.Create(e.as("ann"), storage.CreateInput{Key: "a", Data: object{"name": "n", "description": "secret"}, Message: ptr("secret")}))(t)
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 1, Reason: "first", Paths: []string{"/websiteUrl"}, Messages: ptr(true)}))(t)
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 2, Reason: "second", Paths: []string{"/description"}}))(t)
	by := func(e *env) (numbers []int) {
		ctx := e.begin()
		for _, v := range must(must(e.projects.Get(ctx, "a", nil, ptr(1)))(t).VersionInfo().Erased(ctx))(t) {
			numbers = append(numbers, v.Number())
		}
		return numbers
	}
	if got := by(e); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("version 1 was erased by %v", got)
	}
	other := newEnvOf(t, erasableTypes(), nil)
	other.clock.advance(time.Hour)
	vs := e.versions()
	for i := range vs {
		vs[i].Seal = nil
	}
	vs = slices.DeleteFunc(vs, func(v driver.Version) bool { return v.Collection != "software" })
	if _, err := other.store.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	if got := by(other); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("without seals, version 1 was erased by %v", got)
	}
	if err := e.engine.Rewrite(t.Context(), "software", "a", []driver.Version{{Number: 2, Op: driver.OpPruned, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	if got := by(e); !slices.Equal(got, []int{3}) {
		t.Errorf("with one that is pruned, version 1 was erased by %v", got)
	}
}

// What once was no object is erased as a whole; and who may not write leaves no note.
func TestEraseInWhatIsNoObject(t *testing.T) {
	types := erasableTypes()
	types[0].Auth.Rows = `description = $sub or stars = 1`
	e := newEnvOf(t, types, nil)
	for _, release := range []string{`[{"tag":"secret"}]`, `"secret"`, `{"tag":"secret"}`, `{"notes":["n"]}`} {
		e.load("software", "a", fmt.Sprintf(`{"name":"A","stargazers_count":1,"current_release":%s}`, release))
	}
	in := storage.EraseInput{Key: "a", ExpectedVersion: 4, Reason: "r", Paths: []string{"/currentRelease/tag"}}
	must(e.erase(in))(t)
	if found := e.secrets(); found != nil {
		t.Errorf("versions %v hold secrets", found)
	}
	for n := 1; n <= 2; n++ {
		release, err := must(e.projects.Get(e.begin(), "a", nil, ptr(n)))(t).Document.Object.Object(fRelease)
		if release != nil || err != nil {
			t.Errorf("version %d has a release %v, %v", n, release, err)
		}
	}
	e.load("software", "b", `{"name":"A","stargazers_count":1,"current_release":["secret"]}`)
	in.Key, in.ExpectedVersion = "b", 1
	_, err := e.erase(in)
	wantError(t, err, fault.CodeBadUserInput, "is not an object")
	notes := e.notes()
	in.Paths = []string{"/stars"}
	_, err = e.erase(in)
	wantError(t, err, fault.CodeForbidden, "could not read it afterwards")
	if e.notes() != notes {
		t.Error("what is forbidden is noted")
	}
}

// While versions are imported, each that there is when a document is erased is erased, and no import
// changes that afterwards.
func TestEraseBesideAnImport(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	var vs []driver.Version
	begin := e.clock.advance(0)
	e.clock.advance(time.Hour)
	for i := range 60 {
		vs = append(vs, driver.Version{Collection: "software", Key: "a", RecordedAt: begin + driver.Instant(i), Author: "x", Data: fmt.Appendf(nil, `{"description":"secret","name":"A","stargazers_count":%d}`, i)})
	}
	load := func() (n int, err error) {
		for batch := range slices.Chunk(slices.Clone(vs), 3) {
			if _, err := e.store.Load(t.Context(), batch); err != nil {
				return n, err
			}
			n += len(batch)
		}
		return n, nil
	}
	if _, err := e.store.Load(t.Context(), slices.Clone(vs[:1])); err != nil {
		t.Fatal(err)
	}
	ctx := e.by("eve", nil, "privacy")
	loaded := 0
	var err error
	var all sync.WaitGroup
	all.Go(func() { loaded, err = load() })
	erased := 0
	for erased == 0 {
		d := must(e.projects.Get(t.Context(), "a", nil, nil))(t)
		done := must(e.projects.Erase(ctx, storage.EraseInput{Key: "a", ExpectedVersion: d.Version(), Reason: "r", Paths: []string{"/description"}}))(t)
		if s, ok := done.(*storage.Success[*project]); ok {
			erased = s.Version
		}
	}
	all.Wait()
	if refused := new(driver.LoadError); errors.As(err, &refused) != (loaded < len(vs)) {
		t.Errorf("%d versions were loaded, and then: %v", loaded, err)
	}
	_, _ = load()
	if found := e.secrets(); found != nil {
		t.Errorf("version %d erases, and versions %v hold secrets", erased, found)
	}
}

func TestReplaceName(t *testing.T) {
	e, r := newRewriting(t, erasableTypes())
	for i, name := range []string{"secret-1", "secret-2"} {
		ctx := storage.WithActor(e.begin(), storage.Actor{ID: "ann", Name: name})
		must(e.projects.Create(ctx, storage.CreateInput{Key: fmt.Sprint(i), Data: object{"name": "n"}}))(t)
		e.clock.advance(time.Hour)
	}
	if len(e.secrets()) != 2 {
		t.Fatal("names are not where they are looked for")
	}
	wantError(t, e.store.ReplaceName(t.Context(), "bob", "B"), fault.CodeNotFound, "bob")
	r.before = killed
	if err := e.store.ReplaceName(t.Context(), "ann", "A"); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Errorf("its engine fails, and it says %v", err)
	}
	r.before = nil
	if err := e.store.FinishErasures(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.store.ReplaceName(t.Context(), "ann", "B"); err != nil {
		t.Fatal(err)
	}
	if found := e.secrets(); found != nil {
		t.Errorf("versions %v hold the old names", found)
	}
	e.clock.advance(time.Hour)
	ctx := e.begin()
	author := must(e.projects.Get(ctx, "0", nil, nil))(t).VersionInfo().Author()
	if name := must(author.LatestName(ctx))(t); name == nil || *name != "B" {
		t.Errorf("ann is called %v", name)
	}
}

// A copy that ends with a version of which something was erased is read, written and erased as any.
func TestPartOfAnErasedHistory(t *testing.T) {
	from := newEnvOf(t, erasableTypes(), nil)
	from.secretHistory()
	must(from.erase(storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r", Paths: []string{"/name"}, Versions: &storage.VersionRange{To: ptr(5)}}))(t)
	e := newEnvOf(t, erasableTypes(), nil)
	e.clock.advance(time.Hour)
	vs := slices.DeleteFunc(from.versions(), func(v driver.Version) bool { return v.Collection != "software" || v.Number > 3 })
	if _, err := e.store.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	name, err := e.get("a").OptString(fName)
	if name != nil || err != nil {
		t.Errorf("it is called %v, %v", name, err)
	}
	e.update("ann", "a", 3, object{"stars": 4})
	d := e.start("ann", storage.StartDraftInput{Key: "a"})
	if content := string(d.Content()); strings.Contains(content, "asof:") {
		t.Errorf("a draft has %s", content)
	}
	e.approve("ann", e.save("ann", d, object{"stars": 5, "name": "B"}))
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 5, Reason: "r", Paths: secretPaths}))(t)
	if name, err := e.get("a").String(fName); name != "B" || err != nil || e.secrets() != nil {
		t.Errorf("it is called %q, %v; versions %v hold secrets", name, err, e.secrets())
	}
	ctx := e.begin()
	if by := must(must(e.projects.Get(ctx, "a", nil, ptr(4)))(t).VersionInfo().Erased(ctx))(t); len(by) != 1 || by[0].Number() != 6 {
		t.Errorf("version 4 was erased by %d versions", len(by))
	}
}

// What watches keep of the last versions is not told any more when it was erased, by no server.
func TestWatchesOfWhatWasErased(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	beside := *e
	beside.store = must(storage.New(e.engine, erasableTypes()))(t)
	defer e.store.Notify(func() {})() // so that it keeps them
	defer beside.store.Notify(func() {})()
	since := e.clock.advance(0)
	e.secretHistory()
	var last string
	for _, of := range []*env{e, &beside} {
		told, positions := of.watched(storage.WatchQuery{Since: &since}, 7)
		if last = positions[7]; !strings.Contains(strings.Join(told, " "), "secret-2") {
			t.Fatal("secrets are not where they are looked for")
		}
	}
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r", Paths: secretPaths}))(t)
	beside.watched(storage.WatchQuery{After: last}, 1)
	for i, of := range []*env{e, &beside} {
		told, _ := of.watched(storage.WatchQuery{Since: &since}, 8)
		if strings.Contains(strings.Join(told, " "), "secret-") {
			t.Errorf("server %d tells %q", i, told)
		}
	}
}
