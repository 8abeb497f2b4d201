package storage_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// erasableTypes is the fixture's types with projects that those with a role may erase.
func erasableTypes() []*record.Type {
	types := fixtureTypes()
	types[0].Auth.Erase = []string{"privacy"}
	types[0].Fields[fName].Erasable = true
	return types
}

func (e *env) erase(in storage.EraseInput) (any, error) {
	e.t.Helper()
	return e.projects.Erase(e.by("eve", nil, "privacy"), in)
}

// versions is all versions that the store holds, in the order of commits. They vouch for themselves.
func (e *env) versions() []driver.Version {
	e.t.Helper()
	var vs []driver.Version
	before := map[string][]byte{}
	for v, err := range e.engine.Log(e.t.Context(), &driver.LogQuery{}) {
		if err != nil {
			e.t.Fatal(err)
		}
		if err := seal.Verify(before[v.Collection+v.Key], v); err != nil {
			e.t.Errorf("%s %q, version %d: %v", v.Collection, v.Key, v.Number, err)
		}
		before[v.Collection+v.Key] = v.Seal
		vs = append(vs, *v)
	}
	return vs
}

// secrets are the versions that hold what is to be erased.
func (e *env) secrets() (found []int64) {
	e.t.Helper()
	for _, v := range e.versions() {
		if strings.Contains(string(v.Data)+v.Message, "secret") {
			found = append(found, v.Number)
		}
	}
	return found
}

// secretHistory makes a project of seven versions, six of which hold secrets, and a draft of it.
func (e *env) secretHistory() {
	e.t.Helper()
	e.create("a", object{
		"name": "secret", "description": "secret-1", "stars": 1, "tags": []any{"secret"}, "plan": "FREE",
		"currentRelease": object{"tag": "secret-1", "notes": []any{"n"}}, "commitHistory": object{"x": "secret"},
	})
	e.update("ann", "a", 1, object{"stars": 2})
	e.update("ann", "a", 2, object{"description": "secret-2", "currentRelease": object{"notes": []any{"m"}}})
	e.update("ann", "a", 3, object{"description": nil})
	e.update("ann", "a", 4, object{"description": "secret-2", "currentRelease": object{"tag": "secret-2"}})
	must(e.projects.Update(e.as("ann"), storage.UpdateInput{Key: "a", ExpectedVersion: 5, Patch: object{"name": "A"}, Message: ptr("no secret")}))(e.t)
	e.update("ann", "a", 6, object{"stars": 3})
	d := e.start("bob", storage.StartDraftInput{Key: "a", Title: ptr("secret")})
	e.save("bob", d, object{"description": "secret-3"})
	must(e.projects.DiscardDraft(e.as("bob"), storage.DiscardDraftInput{Draft: e.start("bob", storage.StartDraftInput{Key: "a"}).ID()}))(e.t)
}

var secretPaths = []string{"/description", "/tags", "/currentRelease/tag", "/commitHistory"}

func TestErase(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	e.secretHistory()
	before := e.versions()
	if r, ok := must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 6, Reason: "r", Paths: secretPaths}))(t).(*storage.Conflict[*project]); !ok || r.ActualVersion != 7 {
		t.Fatalf("another version is current: %+v", r)
	}
	asked := storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "asked to", Paths: secretPaths, Messages: ptr(true)}
	done := must(e.erase(asked))(t).(*storage.Success[*project])
	if done.Version != 8 || done.Document.Version() != 8 {
		t.Errorf("made version %d", done.Version)
	}
	if cmp.Equal(e.secrets(), []int64(nil)) {
		t.Error("names are not erased, and found nowhere") // so that the search is one
	}
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 8, Reason: "its name, too", Paths: []string{"/name"}, Versions: &storage.VersionRange{To: ptr(5)}}))(t)
	if found := e.secrets(); found != nil {
		t.Errorf("versions %v still hold secrets", found)
	}

	ctx := e.begin()
	now := e.get("a")
	if name, err := now.String(fName); name != "A" || err != nil || now.Version() != 9 {
		t.Errorf("now: %q of version %d, %v", name, now.Version(), err)
	}
	v3 := must(e.projects.Get(ctx, "a", nil, ptr(3)))(t)
	name, err1 := v3.OptString(fName)
	description, err2 := v3.OptString(fDescription)
	tags, err3 := v3.RefKeys(fTags)
	history, err4 := v3.JSON(fHistory)
	release, err5 := v3.Document.Object.Object(fRelease)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil || name != nil || description != nil || len(tags) != 0 || history != nil {
		t.Errorf("version 3 reads as %v, %v, %v, %s, %v", name, description, tags, history, err)
	}
	if tag, err := release.OptString(0); tag != nil || err != nil {
		t.Errorf("its release has the tag %v, %v", tag, err)
	}
	if stars, err := v3.OptInt(fStars); err != nil || *stars != 2 {
		t.Errorf("its stars are %v, %v", stars, err)
	}
	by := must(v3.VersionInfo().Erased(ctx))(t)
	if len(by) != 2 || by[0].Number() != 8 || by[1].Number() != 9 || by[0].Author().ID != "eve" || *by[0].Message() != "asked to" || by[0].Operation() != storage.OperationErase {
		t.Errorf("version 3 says it was erased by %d versions", len(by))
	}
	if by := must(now.VersionInfo().Erased(ctx))(t); len(by) != 0 {
		t.Errorf("the current version was erased by %d versions", len(by))
	}

	log := must(e.store.DocumentChangelog(ctx, now.Document, []string{"description", "currentRelease", "name"}, nil, nil, nil, nil, nil, nil, nil))(t)
	var got []string
	for i, line := range lines(log.Nodes) {
		c := log.Nodes[i]
		if got = append(got, line); c.Erased {
			got[i] += " erased"
		}
	}
	want := []string{
		`REMOVE /description null erased`,
		`REMOVE /currentRelease/tag null erased`,
		`REPLACE /name null -> "A" erased`,
		`REPLACE /currentRelease/tag null -> null erased`,
		`REPLACE /description null -> null erased`,
		`REPLACE /currentRelease/notes/0 "n" -> "m"`,
		`ADD /name -> null erased`,
		`ADD /description -> null erased`,
		`ADD /description -> null erased`,
		`REMOVE /description null erased`,
		`ADD /currentRelease -> {"tag":null,"notes":["n"]} erased`,
	}
	slices.Sort(want)
	slices.Sort(got)
	if !cmp.Equal(got, want) {
		t.Errorf("the changelog: %s", cmp.Diff(want, got))
	}
	d := must(e.store.Diff(ctx, now.Document, storage.VersionRef{Version: ptr(2)}, &storage.VersionRef{Version: ptr(3)}))(t)
	if strings.Contains(string(d.Before())+string(d.After())+string(d.JSONPatch()), "asof:") || !strings.Contains(string(d.Before()), `"description":null`) {
		t.Errorf("the difference from %s to %s: %s", d.Before(), d.After(), d.JSONPatch())
	}
	for _, b := range must(e.store.Blame(ctx, v3.Document, nil))(t) {
		if strings.Contains(b.Path+string(b.Value), "asof:") {
			t.Errorf("blame: %s %s", b.Path, b.Value)
		}
	}
	at := v3.VersionInfo().RecordedAt()
	for _, where := range []object{
		{"description": object{"isNull": true}},
		{"commitHistory": object{"isNull": true}},
		{"tags": object{"isEmpty": true}},
		{"currentRelease": object{"tag": object{"isNull": true}}},
		{"name": object{"isNull": true}},
		{"name": object{"ne": "secret"}},
	} {
		if page := must(e.projects.Page(ctx, where, nil, nil, nil, nil, nil, &at, nil))(t); len(page.Nodes) != 1 {
			t.Errorf("as of version 3, %v finds %d", where, len(page.Nodes))
		}
	}
	_, err := e.projects.Restore(e.as("ann"), storage.RestoreInput{Key: "a", ExpectedVersion: 9, To: &storage.VersionRef{Version: ptr(3)}})
	wantError(t, err, fault.CodeBadUserInput, "was erased", "paths")
	must(e.projects.Restore(e.as("ann"), storage.RestoreInput{Key: "a", ExpectedVersion: 9, To: &storage.VersionRef{Version: ptr(3)}, Paths: []string{"/stars"}}))(t)
	_, err = e.projects.Update(e.as("ann"), storage.UpdateInput{Key: "a", ExpectedVersion: 10, Patch: object{"commitHistory": object{"x": object{"asof:erased": []any{1, 2}}}}})
	wantError(t, err, fault.CodeBadUserInput, "cannot be written")
	if ids := e.drafts("bob", nil); len(ids) != 0 {
		t.Errorf("drafts are left: %v", ids)
	}
	if err := e.store.Mismatches(ctx, func(m storage.Mismatch) { t.Errorf("%+v", m) }); err != nil {
		t.Error(err)
	}

	// What was exported before is the same, and brings nothing back.
	before = slices.DeleteFunc(before, func(v driver.Version) bool { return v.Collection != "software" })
	result, err := e.store.Load(t.Context(), before)
	if err != nil || result.Added != 0 {
		t.Errorf("an old export: %+v, %v", result, err)
	}
	if found := e.secrets(); found != nil {
		t.Errorf("versions %v hold secrets again", found)
	}
	// And what is exported now is loaded elsewhere as it is.
	other := newEnvOf(t, erasableTypes(), nil)
	other.clock.advance(time.Hour)
	vs := e.versions()
	if _, err := other.store.Load(t.Context(), slices.Clone(vs)); err != nil {
		t.Fatal(err)
	}
	for i, v := range other.versions() {
		if !cmp.Equal(v.Changed, vs[i].Changed) || !cmp.Equal(v.Data, vs[i].Data) || !cmp.Equal(v.Seal, vs[i].Seal) {
			t.Errorf("%s %s, version %d is another one in a copy", v.Collection, v.Key, v.Number)
		}
	}
}

// What watches keep for each other is not told any more, and none is where it would follow another.
func TestErasedIsNotTold(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	since := e.clock.advance(0)
	defer e.store.Notify(func() {})()
	e.secretHistory()
	watch := func() (begin any, events int, told string) {
		w := must(e.store.Watch(t.Context(), storage.WatchQuery{Since: &since, Collections: []string{"software"}}))(t)
		begin = w.Place()
		for more := true; more; {
			more = must(w.Next(t.Context(), func(event *storage.Event) bool {
				events++
				told += strings.Join(lines(must(event.Changes(t.Context()))(t)), "\n")
				return true
			}))(t)
		}
		return begin, events, told
	}
	begin, events, told := watch()
	if !strings.Contains(told, "secret-") || events != 7 {
		t.Fatalf("%d events tell %s", events, told)
	}
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "asked to", Paths: secretPaths}))(t)
	again, events, told := watch()
	if strings.Contains(told, "secret-") || events != 8 {
		t.Errorf("%d events tell %s", events, told)
	}
	if again == begin {
		t.Error("watches that tell something else are at the same place")
	}
}

// What was read for watches before it was erased is not told after that, nor kept.
func TestErasedWhileItIsRead(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	since := e.clock.advance(0)
	defer e.store.Notify(func() {})()
	e.secretHistory()
	inner, erased := e.engine.Engine, false
	e.engine.Engine = &beforeYield{inner, func() {
		if !erased {
			erased = true
			must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "asked to", Paths: secretPaths}))(t)
		}
	}}
	for range 2 {
		w := must(e.store.Watch(t.Context(), storage.WatchQuery{Since: &since, Collections: []string{"software"}}))(t)
		told, events := "", 0
		for more := true; more; {
			more = must(w.Next(t.Context(), func(event *storage.Event) bool {
				events++
				told += strings.Join(lines(must(event.Changes(t.Context()))(t)), "\n")
				return true
			}))(t)
		}
		if !erased || strings.Contains(told, "secret-") || events < 7 {
			t.Errorf("erased: %v; %d events tell %s", erased, events, told)
		}
	}
}

// beforeYield is an engine that does something between reading a log and telling it.
type beforeYield struct {
	driver.Engine
	do func()
}

func (b *beforeYield) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		var vs []*driver.Version
		for v, err := range b.Engine.Log(ctx, q) {
			if err != nil {
				yield(nil, err)
				return
			}
			vs = append(vs, v)
		}
		if len(vs) > 6 && slices.Contains(q.Collections, "software") {
			b.do()
		}
		for _, v := range vs {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func TestEraseAll(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	e.secretHistory()
	e.load("software", "a", `{"name":"secret","old_member":"secret","archived":null}`)
	done := must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 8, Reason: "asked to", Messages: ptr(true)}))(t).(*storage.Success[*project])
	if done.Document != nil || done.Version != 9 || done.DeletedID == nil {
		t.Errorf("erased: %+v", done)
	}
	if found := e.secrets(); found != nil {
		t.Errorf("versions %v still hold secrets", found)
	}
	ctx := e.begin()
	h := must(e.projects.History(ctx, "a"))(t)
	page := must(e.projects.Versions(ctx, h.Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
	if len(page.Nodes) != 9 || page.Nodes[0].VersionInfo().Operation() != storage.OperationErase {
		t.Errorf("the history has %d versions", len(page.Nodes))
	}
	for _, d := range page.Nodes {
		if name, err := d.OptString(fName); name != nil || err != nil {
			t.Errorf("version %d has a name %v, %v", d.Version(), name, err)
		}
	}
	// Once more, of what is deleted; and the key can be used again.
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 9, Reason: "again"}))(t)
	e.create("a", object{"name": "B"})
	if got := e.get("a"); got.Version() != 11 {
		t.Errorf("created again as version %d", got.Version())
	}
}

func TestEraseRefuses(t *testing.T) {
	types := erasableTypes()
	types[0].Fields[fPrice].Auth.Read = []string{"lead"}
	types[0].Fields[fRelease].Object.Fields[0].NonNull = true
	e := newEnvOf(t, types, nil)
	e.secretHistory()
	n := len(e.versions())
	for name, c := range map[string]struct {
		change func(*storage.EraseInput)
		says   string
	}{
		"no reason":             {func(in *storage.EraseInput) { in.Reason = " " }, "input.reason"},
		"no paths":              {func(in *storage.EraseInput) { in.Paths = []string{} }, "1 to 100 paths"},
		"an unknown path":       {func(in *storage.EraseInput) { in.Paths = []string{"/nothing"} }, "no field"},
		"no pointer":            {func(in *storage.EraseInput) { in.Paths = []string{"name"} }, "JSON Pointer"},
		"in a list":             {func(in *storage.EraseInput) { in.Paths = []string{"/tags/0"} }, "name the whole list, /tags"},
		"in JSON":               {func(in *storage.EraseInput) { in.Paths = []string{"/commitHistory/x"} }, "as a whole"},
		"what is required":      {func(in *storage.EraseInput) { in.Paths = []string{"/name"} }, "versions: {to: 7}"},
		"required in an object": {func(in *storage.EraseInput) { in.Paths = []string{"/currentRelease/tag"} }, "erase the whole of /currentRelease"},
		"versions alone":        {func(in *storage.EraseInput) { in.Paths, in.Versions = nil, &storage.VersionRange{To: ptr(3)} }, "name the paths"},
		"later versions":        {func(in *storage.EraseInput) { in.Versions = &storage.VersionRange{To: ptr(8)} }, "are not versions"},
		"backwards":             {func(in *storage.EraseInput) { in.Versions = &storage.VersionRange{From: ptr(3), To: ptr(2)} }, "are not versions"},
		"a part at the end":     {func(in *storage.EraseInput) { in.Versions = &storage.VersionRange{To: ptr(1)} }, "versions 1 and 2 have the same value"},
		"a part at the start":   {func(in *storage.EraseInput) { in.Versions = &storage.VersionRange{From: ptr(2)} }, "versions 1 and 2 have the same value"},
	} {
		in := storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r", Paths: []string{"/description"}}
		c.change(&in)
		_, err := e.erase(in)
		var own *fault.Error
		if !errors.As(err, &own) || own.Code != fault.CodeBadUserInput || !strings.Contains(own.Message, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r"}
	_, err := e.projects.Erase(e.by("ann", nil, "lead"), in)
	wantError(t, err, fault.CodeForbidden)
	_, err = e.tags.Erase(e.by("eve", nil, "privacy"), in)
	wantError(t, err, fault.CodeForbidden)
	in.Paths = []string{"/price"}
	_, err = e.erase(in)
	wantError(t, err, fault.CodeForbidden, "price")
	if len(e.versions()) != n {
		t.Error("something was written")
	}
}

// dying is an engine that is gone after so many calls that read or write.
type dying struct {
	driver.Engine
	left *atomic.Int64
}

func (d dying) dead() error {
	if d.left.Add(-1) < 0 {
		return driver.Errorf(driver.CodeUnavailable, "killed")
	}
	return nil
}

func (d dying) Get(ctx context.Context, c string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if err := d.dead(); err != nil {
		return nil, err
	}
	return d.Engine.Get(ctx, c, refs, fields)
}

func (d dying) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	if err := d.dead(); err != nil {
		return func(yield func(*driver.Version, error) bool) { yield(nil, err) }
	}
	return d.Engine.Log(ctx, q)
}

func (d dying) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	if err := d.dead(); err != nil {
		return nil, err
	}
	return d.Engine.Commit(ctx, ws)
}

func (d dying) Rewrite(ctx context.Context, c, key string, vs []driver.Version) error {
	for i := range vs { // one at a time, as an engine may
		if err := d.dead(); err != nil {
			return err
		}
		if err := d.Engine.Rewrite(ctx, c, key, vs[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// Killed anywhere, either nothing is erased, or all is when another server has finished it; and what
// it leaves is as if it had not been killed.
func TestEraseKilled(t *testing.T) {
	var want []driver.Version
	erased, not := 0, 0
	for calls := int64(1_000_000); calls > 0; {
		left := new(atomic.Int64)
		left.Store(1_000_000)
		e := newEnvOf(t, erasableTypes(), func(engine driver.Engine) driver.Engine { return dying{engine, left} })
		e.secretHistory()
		must(e.projects.Update(e.as("ann"), storage.UpdateInput{Key: "a", ExpectedVersion: 7, Patch: object{"name": "B"}}))(t)
		n := len(e.versions())
		ctx := e.by("eve", nil, "privacy")
		left.Store(calls)
		_, err := e.projects.Erase(ctx, storage.EraseInput{Key: "a", ExpectedVersion: 8, Reason: "r", Paths: []string{"/description", "/tags", "/currentRelease", "/commitHistory"}})
		if calls == 1_000_000 {
			if err != nil {
				t.Fatal(err)
			}
			calls -= left.Load()
			for _, v := range e.versions() {
				if v.Collection == "software" {
					want = append(want, v)
				}
			}
			continue
		}
		if calls--; err == nil {
			continue // what was left is done by others
		}
		other, err := storage.New(e.engine, erasableTypes())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := other.FinishErasures(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.clock.advance(2 * record.Grace)
		}
		if notes := must(e.engine.Query(t.Context(), &driver.Query{Collection: "asof_retention", At: driver.Forever}))(t); len(notes) != 0 {
			t.Errorf("%d calls: %d notes are left", calls, len(notes))
		}
		var got []driver.Version
		for _, v := range e.versions() {
			if v.Collection == "software" {
				got = append(got, v)
			}
		}
		if len(got) == 8 {
			not++
			if len(e.secrets()) == 0 || len(e.versions()) > n+2 {
				t.Errorf("%d calls: there is no version that erases, and something is erased", calls)
			}
			continue
		}
		erased++
		for i := range want {
			if string(got[i].Data) != string(want[i].Data) {
				t.Errorf("%d calls: version %d is %s, want %s", calls, i+1, got[i].Data, want[i].Data)
			}
		}
		for _, v := range e.versions() {
			if v.Collection == "software.drafts" && strings.Contains(string(v.Data), "secret") {
				t.Errorf("%d calls: a draft is left: %s", calls, v.Data)
			}
		}
	}
	if erased < 10 || not < 2 {
		t.Errorf("killed %d times after the version was made, %d before", erased, not)
	}
}

// Of two who erase at once, while others write, both get through, and nothing is left.
func TestErasuresRace(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	e.secretHistory()
	ctx := e.by("eve", nil, "privacy")
	var all sync.WaitGroup
	until := func(try func(version int) (any, error)) {
		all.Go(func() {
			for {
				d, err := e.projects.Get(e.t.Context(), "a", nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				switch r, err := try(d.Version()); {
				case err != nil:
					t.Error(err)
					return
				case r != nil:
					if _, lost := r.(*storage.Conflict[*project]); !lost {
						return
					}
				}
			}
		})
	}
	for _, path := range secretPaths {
		until(func(version int) (any, error) {
			return e.projects.Erase(ctx, storage.EraseInput{Key: "a", ExpectedVersion: version, Reason: "r", Paths: []string{path}})
		})
	}
	until(func(version int) (any, error) {
		return e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: version, Patch: object{"stars": 100}})
	})
	all.Wait()
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: e.get("a").Version(), Reason: "r", Paths: []string{"/name"}, Versions: &storage.VersionRange{To: ptr(5)}, Messages: ptr(true)}))(t)
	for _, v := range e.versions() {
		if v.Collection == "software" && strings.Contains(string(v.Data), "secret") {
			t.Errorf("version %d still has %s", v.Number, v.Data)
		}
	}
}
