package storage_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// by begins an operation of somebody with roles and claims.
func (e *env) by(id string, claims map[string]any, roles ...string) context.Context {
	return storage.WithActor(e.begin(), storage.Actor{ID: id, Roles: roles, Claims: claims})
}

// Lists, counts and single reads agree on which documents a rule lets somebody read.
func TestRules(t *testing.T) {
	docs := map[string]string{
		"ada":     `{"name":"n","description":"ada","stargazers_count":3,"plan":"FREE","tags":["x","ada"],"archived":false}`,
		"bob":     `{"name":"n","description":"bob","stargazers_count":4,"plan":"PAID","tags":[],"archived":true}`,
		"nobody":  `{"name":"n","description":null,"plan":"FREE","tags":["x"],"archived":null}`,
		"missing": `{"name":"n"}`,
		"wrong":   `{"name":"n","description":7,"stargazers_count":"3","tags":"ada"}`,
	}
	all := []string{"ada", "bob", "missing", "nobody", "wrong"}
	claims := map[string]any{"groups": []any{"x", 3.0, true}, "level": 3.0, "half": 3.5, "team": "x", "sub": "forged"}
	for _, c := range []struct {
		rule string
		want []string // of ada, with these claims and the role editor
		none []string // of nobody
	}{
		{"description = $sub", []string{"ada"}, nil},
		{"description != $sub", []string{"bob", "missing", "nobody", "wrong"}, nil},
		{"not description = $sub", []string{"bob", "missing", "nobody", "wrong"}, nil},
		{"description = null", []string{"missing", "nobody", "wrong"}, []string{"missing", "nobody", "wrong"}},
		{"description != null", []string{"ada", "bob"}, []string{"ada", "bob"}},
		{"description = null or description = $sub", []string{"ada", "missing", "nobody", "wrong"}, []string{"missing", "nobody", "wrong"}},
		{"not (description = null or description = $sub)", []string{"bob"}, nil},
		{"not (description = null and description = $sub)", all, []string{"ada", "bob"}},
		{"stars = 3", []string{"ada"}, []string{"ada"}},
		{"stars = $level", []string{"ada"}, nil},
		{"stars = $half", nil, nil},
		{"stars in $groups", []string{"ada"}, nil},
		{"description = $groups", nil, nil},
		{"description != $groups", nil, nil},
		{"$team in tags", []string{"ada", "nobody"}, nil},
		{"$sub in tags", []string{"ada"}, nil},
		{`not "x" in tags`, []string{"bob", "missing", "wrong"}, []string{"bob", "missing", "wrong"}},
		{`plan = "PAID" and description != $sub`, []string{"bob"}, nil},
		{`"editor" in $roles`, all, nil},
		{`not "editor" in $roles`, nil, all},
		{`$team = "x" and plan = "FREE"`, []string{"ada", "nobody"}, nil},
		{`$nothing = "x" or $nothing != "x"`, nil, nil},
		{"archived = false", []string{"ada", "missing", "nobody", "wrong"}, []string{"ada", "missing", "nobody", "wrong"}},
		{"archived != false", []string{"bob"}, []string{"bob"}},
		{"archived = null", nil, nil},
		{"archived != null", all, all},
	} {
		t.Run(c.rule, func(t *testing.T) {
			types := fixtureTypes()
			types[0].Auth.Rows = c.rule
			e := newEnvOf(t, types, nil)
			for _, key := range all {
				e.load("software", key, docs[key])
			}
			check := func(want []string, begin func() context.Context) {
				t.Helper()
				page := must(e.projects.Page(begin(), object{"key": object{"in": []any{"ada", "bob", "missing", "nobody", "wrong"}}}, nil, nil, nil, nil, nil, nil, nil))(t)
				var listed, read []string
				for _, p := range page.Nodes {
					listed = append(listed, p.Key())
				}
				for _, key := range all {
					if must(e.projects.Get(begin(), key, nil, nil))(t) != nil {
						read = append(read, key)
					}
				}
				if diff := cmp.Diff(want, listed); diff != "" {
					t.Errorf("listed (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(want, read); diff != "" {
					t.Errorf("read (-want +got):\n%s", diff)
				}
				if n := must(page.TotalCount(begin()))(t); n != len(want) {
					t.Errorf("%d are counted, not %d", n, len(want))
				}
			}
			check(c.want, func() context.Context { return e.by("ada", claims, "editor") })
			check(c.none, e.begin)
		})
	}
}

// ruled is an environment where a document is its owner's (the description), stars are written
// by editors and read by all, prices are read and written by editors, who also see the past of tags.
func ruled(t *testing.T) *env {
	t.Helper()
	types := fixtureTypes()
	types[0].Auth = record.Auth{Rows: `description = $sub or "editor" in $roles`, Write: []string{"writer", "editor"}}
	types[0].Fields[fStars].Auth.Write = []string{"editor"}
	types[0].Fields[fPrice].Auth.Read = []string{"editor"}
	types[1].Auth.History = []string{"editor"}
	return newEnvOf(t, types, func(engine driver.Engine) driver.Engine { return knowing{engine} })
}

// knowing is an engine that remembers every version.
type knowing struct{ driver.Engine }

func (k knowing) Remembered(ctx context.Context, collection, key string, number int64) (*driver.Version, error) {
	vs, err := k.Get(ctx, collection, []driver.Ref{{Key: key, Number: number}}, nil)
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

// Who may not read the past is not told when a document that he cannot read could be read: it depends on
// the document as it is.
func TestPastOfWhatIsHidden(t *testing.T) {
	types := fixtureTypes()
	types[0].Auth = record.Auth{Rows: `description = $sub`, History: []string{"editor"}}
	e := newEnvOf(t, types, nil)
	for _, key := range []string{"hidden", "shown"} {
		for _, owner := range []string{"bob", "ada", "bob", map[string]string{"hidden": "bob", "shown": "ada"}[key]} {
			e.load("software", key, `{"name":"A","tags":[],"description":"`+owner+`"}`)
		}
	}
	for n := 1; n <= 3; n++ {
		for key, wanted := range map[string]bool{"hidden": false, "shown": true} {
			p, err := e.projects.Get(e.by("ada", nil), key, nil, &n)
			if wanted {
				wantError(t, err, fault.CodeForbidden, "the past of Project")
			} else if p != nil || err != nil {
				t.Errorf("version %d of what is hidden: %v, %v", n, p, err)
			}
		}
	}
	n := 4
	if p, err := e.projects.Get(e.by("ada", nil), "shown", nil, &n); p == nil || err != nil {
		t.Errorf("the last version by its number: %v, %v", p, err)
	}
}

// A total of versions counts those that may be read, although numbers tell of others.
func TestTotalsNeedPermission(t *testing.T) {
	types := fixtureTypes()
	types[0].Auth = record.Auth{Rows: `description = $sub`}
	e := newEnvOf(t, types, nil)
	for _, owner := range []string{"bob", "bob", "ada", "bob", "bob", "bob", "ada"} {
		e.load("software", "p", `{"name":"A","tags":[],"description":"`+owner+`"}`)
	}
	ctx := e.by("ada", nil)
	p := must(e.projects.Get(ctx, "p", nil, nil))(t)
	all := must(e.store.Versions(ctx, p.Document, &storage.VersionsArgs{First: ptr(9)}))(t)
	page := must(e.store.Versions(ctx, p.Document, &storage.VersionsArgs{First: ptr(1)}))(t)
	if n := must(page.TotalCount(ctx))(t); n != len(all.Docs) || n >= 7 {
		t.Errorf("%d versions are counted, and %d are there", n, len(all.Docs))
	}
}

// What a version changed is compared with the one before it as it may be read: a field that is equal in one
// that is hidden tells what that holds.
func TestChangedSinceWhatIsHidden(t *testing.T) {
	types := fixtureTypes()
	types[0].Auth = record.Auth{Rows: `description = $sub`}
	types[0].Fields[fPrice].Auth.Read = []string{"editor"}
	e := newEnvOf(t, types, nil)
	for i, data := range []string{`"A","description":"ada"`, `"B","description":"bob"`, `"B","description":"ada"`, `"B","description":"ada","stargazers_count":1`} {
		e.load("software", "p", fmt.Sprintf(`{"tags":[],"priority":%d,"name":%s}`, i, data))
	}
	ctx := e.by("ada", nil)
	p := must(e.projects.Get(ctx, "p", nil, nil))(t)
	all := []string{}
	for i := range types[0].Fields {
		if i != fPrice {
			all = append(all, types[0].Fields[i].Name)
		}
	}
	numbers := func(field string) (found []int) {
		list := must(e.store.Versions(ctx, p.Document, &storage.VersionsArgs{Fields: []string{field}, First: ptr(9)}))(t)
		for _, v := range list.Docs {
			found = append(found, v.Version())
		}
		if n := must(list.TotalCount(ctx))(t); n != len(found) {
			t.Errorf("%d versions with %s are counted, %v are there", n, field, found)
		}
		return found
	}
	list := must(e.store.Versions(ctx, p.Document, &storage.VersionsArgs{First: ptr(9)}))(t)
	for _, v := range list.Docs {
		got := changedFields(t, v.VersionInfo(), ctx)
		switch v.Version() {
		case 3:
			if diff := cmp.Diff(all, got); diff != "" {
				t.Errorf("after the hidden one (-want +got):\n%s", diff)
			}
		case 4:
			if !slices.Contains(got, "stars") || slices.Contains(got, "name") {
				t.Errorf("the last one changed %v", got)
			}
		}
	}
	if got := numbers("name"); !slices.Contains(got, 3) || slices.Contains(got, 2) || slices.Contains(got, 4) {
		t.Errorf("the name changed in %v", got)
	}
	if got := numbers("stars"); !slices.Contains(got, 3) || !slices.Contains(got, 4) {
		t.Errorf("stars changed in %v", got)
	}
}

// A field that may not be read changes no page of the versions that changed it or another one.
func TestVersionsThatChangedWhatIsHidden(t *testing.T) {
	types := fixtureTypes()
	types[0].Fields[fPrice].Auth.Read = []string{"editor"}
	e := newEnvOf(t, types, nil)
	for i, price := range []int{1, 1, 2, 2, 2} {
		e.load("software", "p", fmt.Sprintf(`{"tags":[],"description":"d","name":%q,"stargazers_count":%d,"price":"%d"}`, []string{"A", "A", "B", "B", "B"}[i], []int{1, 2, 2, 3, 4}[i], price))
	}
	ctx := e.by("ada", nil)
	p := must(e.projects.Get(ctx, "p", nil, nil))(t)
	price := types[0].Fields[fPrice].Name
	for _, first := range []int{1, 2, 3, 4, 9} {
		page := func(fields ...string) (found []int, more bool, total int) {
			list := must(e.store.Versions(ctx, p.Document, &storage.VersionsArgs{Fields: fields, Members: []string{}, First: &first}))(t)
			for _, v := range list.Docs {
				found = append(found, v.Version())
			}
			return found, list.HasNextPage, must(list.TotalCount(ctx))(t)
		}
		found, more, total := page("stars")
		withPrice, moreWithPrice, totalWithPrice := page("stars", price)
		if !slices.Equal(found, withPrice) || more != moreWithPrice || total != totalWithPrice || total != 4 {
			t.Errorf("first %d: %v, more %v, of %d; with a field that may not be read %v, more %v, of %d", first, found, more, total, withPrice, moreWithPrice, totalWithPrice)
		}
	}
}

func TestWritesNeedPermission(t *testing.T) {
	e := ruled(t)
	ada := func() context.Context { return e.by("ada", nil, "writer") }
	editor := func() context.Context { return e.by("eve", nil, "editor") }
	create := func(ctx context.Context, key string, data object) error {
		_, err := e.projects.Create(ctx, storage.CreateInput{Key: key, Data: data})
		return err
	}
	update := func(ctx context.Context, key string, version int, patch object) (any, error) {
		return e.projects.Update(ctx, storage.UpdateInput{Key: key, ExpectedVersion: version, Patch: patch})
	}
	base := object{"name": "A", "tags": []any{}}
	with := func(more object) object {
		data := maps.Clone(base)
		maps.Copy(data, more)
		return data
	}
	refused := func(err error, parts ...string) {
		t.Helper()
		wantError(t, err, fault.CodeForbidden, parts...)
	}
	refused(create(e.by("ada", nil), "a", with(object{"description": "ada"})), "documents of Project may be written by others only")
	refused(create(ada(), "a", with(object{"description": "bob"})), "could not read it afterwards")
	refused(create(ada(), "a", with(object{"description": "ada", "stars": 1})), "Project.stars may be written by others only")
	refused(create(ada(), "a", with(object{"description": "ada", "price": "1"})), "Project.price may be written by others only")
	if err := create(ada(), "a", with(object{"description": "ada"})); err != nil {
		t.Fatal(err)
	}
	must(update(editor(), "a", 1, object{"stars": 3, "price": "7"}))(t)
	s := must(update(ada(), "a", 2, object{"name": "B"}))(t).(*storage.Success[*project])
	if price, err := s.Document.OptString(fPrice); price != nil || err != nil {
		t.Error(price, err)
	}
	if got := e.stored("a"); !strings.Contains(got, `"price":"7"`) || !strings.Contains(got, `"name":"B"`) || !strings.Contains(got, `"stargazers_count":3`) {
		t.Errorf("who cannot see the price has changed it: %s", got)
	}
	_, err := update(ada(), "a", 3, object{"stars": 4})
	refused(err, "Project.stars may be written by others only")
	for _, price := range []string{"7", "8"} { // also the one that is there: else it could be guessed
		_, err = update(ada(), "a", 3, object{"price": price})
		refused(err, "Project.price may be written by others only")
	}
	_, err = update(ada(), "a", 3, object{"description": "bob"})
	refused(err, "could not read it afterwards")
	o := must(e.projects.Restore(ada(), storage.RestoreInput{Key: "a", ExpectedVersion: 3, To: &storage.VersionRef{Version: ptr(2)}}))(t)
	if s, ok := o.(*storage.Success[*project]); !ok || s.Version != 4 {
		t.Fatalf("%+v", o)
	}
	must(e.projects.Delete(ada(), storage.DeleteInput{Key: "a", ExpectedVersion: 4}))(t)
	must(e.projects.Restore(ada(), storage.RestoreInput{Key: "a", ExpectedVersion: 5, To: &storage.VersionRef{Version: ptr(4)}}))(t)
	if got := e.stored("a"); !strings.Contains(got, `"price":"7"`) || !strings.Contains(got, `"name":"A"`) {
		t.Errorf("restored without what is hidden: %s", got)
	}

	// What belongs to others is not there.
	if err := create(editor(), "b", with(object{"description": "bob"})); err != nil {
		t.Fatal(err)
	}
	refused(create(ada(), "b", with(object{"description": "ada"})), `the Project with the key "b" may be written by others only`)
	for name, write := range map[string]func() (any, error){
		"update": func() (any, error) { return update(ada(), "b", 1, object{"name": "C"}) },
		"delete": func() (any, error) {
			return e.projects.Delete(ada(), storage.DeleteInput{Key: "b", ExpectedVersion: 1})
		},
		"restore": func() (any, error) {
			return e.projects.Restore(ada(), storage.RestoreInput{Key: "b", ExpectedVersion: 1, To: &storage.VersionRef{Version: ptr(1)}})
		},
	} {
		k, ok := must(write())(t).(*storage.Conflict[*project])
		if !ok || k.Message != `Project "b" does not exist` || k.ActualVersion != 0 {
			t.Errorf("%s: %+v", name, k)
		}
	}

	// Who may not read the past is told of a conflict without it.
	must(e.tags.Create(editor(), storage.CreateInput{Key: "t", Data: object{"name": "T"}}))(t)
	must(e.tags.Update(editor(), storage.UpdateInput{Key: "t", ExpectedVersion: 1, Patch: object{"name": "U"}}))(t)
	lost, ok := must(e.tags.Update(ada(), storage.UpdateInput{Key: "t", ExpectedVersion: 1, Patch: object{"name": "V"}}))(t).(*storage.Conflict[*tag])
	if !ok || lost.ActualVersion != 2 || lost.Current == nil || lost.Base != nil || len(must(lost.ChangesSince(ada()))(t)) > 0 {
		t.Errorf("%+v", lost)
	}

	// What somebody could not see for a while is not merged over.
	must(update(editor(), "a", 6, object{"description": "bob"}))(t)
	must(update(editor(), "a", 7, object{"description": "ada", "name": "C"}))(t)
	k, ok := must(e.projects.Update(ada(), storage.UpdateInput{Key: "a", ExpectedVersion: 6, Patch: object{"websiteUrl": "w"}, OnConflict: ptr(storage.Merge)}))(t).(*storage.Conflict[*project])
	if !ok || k.Mergeable {
		t.Errorf("%+v", k)
	}
	since := must(k.ChangesSince(ada()))(t)
	if got := lines(since); !slices.Contains(got, `REMOVE /name "A"`) || strings.Contains(strings.Join(got, ""), "bob") {
		t.Errorf("%q", got)
	}
}

// A watch tells of what may be read: that a document is not any more is a deletion.
func TestWatchesNeedPermission(t *testing.T) {
	e := ruled(t)
	since := e.clock.advance(0)
	eve := func() context.Context { return e.by("eve", nil, "editor") }
	create := func(key string, data object) {
		must(e.projects.Create(eve(), storage.CreateInput{Key: key, Data: data}))(t)
	}
	update := func(key string, version int, patch object) {
		must(e.projects.Update(eve(), storage.UpdateInput{Key: key, ExpectedVersion: version, Patch: patch}))(t)
	}
	create("a", object{"name": "A", "description": "ada", "price": "1", "tags": []any{}})
	update("a", 1, object{"name": "B", "description": "bob", "price": "2"})
	update("a", 2, object{"name": "C", "price": "3"})
	update("a", 3, object{"name": "D", "description": "ada", "price": "4"})
	create("b", object{"name": "S", "description": "bob", "price": "5", "tags": []any{}})
	must(e.projects.Delete(eve(), storage.DeleteInput{Key: "b", ExpectedVersion: 1}))(t)
	must(e.tags.Create(eve(), storage.CreateInput{Key: "t", Data: object{"name": "T"}}))(t)
	create("c", object{"name": "E", "description": "ada", "tags": []any{}})
	places := map[any]int{}
	wantTold := func(actor storage.Actor, hints driver.Hints, meanwhile func(), want ...string) {
		ctx, cancel := context.WithCancel(storage.WithActor(t.Context(), actor))
		defer cancel()
		var told []string
		places[must(e.store.Watch(ctx, storage.WatchQuery{Since: &since, Hints: hints}))(t).Place()]++
		for event, err := range e.follow(ctx, storage.WatchQuery{Since: &since, Hints: hints}) {
			if err != nil {
				t.Fatal(err)
			}
			if event.Begins() {
				continue
			}
			info := event.VersionInfo()
			var said []string
			for _, line := range lines(must(event.Changes(ctx))(t)) {
				if !strings.Contains(line, "archived") && !strings.Contains(line, "tags") {
					said = append(said, line)
				}
			}
			if told == nil {
				meanwhile()
			}
			told = append(told, strings.TrimSpace(event.Key()+"@"+string(rune('0'+info.Number()))+" "+info.Author().ID+" "+strings.Join(said, ", ")))
			if len(told) == len(want) {
				break
			}
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s", actor.ID, diff)
		}
	}
	ada, editor := storage.Actor{ID: "ada"}, storage.Actor{ID: "eve", Roles: []string{"editor"}}
	all := func() { // of the round that the other watch has read
		wantTold(editor, driver.Hints{}, func() {},
			`a@1 eve ADD /name -> "A", ADD /description -> "ada", ADD /price -> "1"`,
			`a@2 eve REPLACE /name "A" -> "B", REPLACE /description "ada" -> "bob", REPLACE /price "1" -> "2"`,
			`a@3 eve REPLACE /name "B" -> "C", REPLACE /price "2" -> "3"`,
			`a@4 eve REPLACE /name "C" -> "D", REPLACE /description "bob" -> "ada", REPLACE /price "3" -> "4"`,
			`b@1 eve ADD /name -> "S", ADD /description -> "bob", ADD /price -> "5"`,
			`b@2 eve REMOVE /name "S", REMOVE /description "bob", REMOVE /price "5"`,
			`t@1 eve ADD /name -> "T"`)
	}
	one, four, last := `a@1 eve ADD /name -> "A", ADD /description -> "ada"`, `a@4 eve ADD /name -> "D", ADD /description -> "ada"`, `c@1 eve ADD /name -> "E", ADD /description -> "ada"`
	wantTold(ada, driver.Hints{}, all, one, `a@2  REMOVE /name "A", REMOVE /description "ada"`, four, last)
	wantTold(ada, driver.Hints{Authors: []string{"eve"}}, func() {}, one, four, last)
	for event, err := range e.follow(storage.WithActor(t.Context(), ada), storage.WatchQuery{Hints: driver.Hints{Authors: []string{"eve"}}}) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Begins() { // what follows is in rounds that watches share
			update("a", 4, object{"description": "bob"})
			update("a", 5, object{"description": "ada"})
			continue
		}
		if n := event.VersionInfo().Number(); n != 6 {
			t.Errorf("version %d was told, whose author is not", n)
		}
		break
	}
	if len(places) != 2 {
		t.Errorf("the same beginning is %d places, and what follows is told in two ways", len(places))
	}
	for _, err := range e.follow(storage.WithActor(t.Context(), ada), storage.WatchQuery{Collections: []string{"tags"}}) {
		wantError(t, err, fault.CodeForbidden, "the past of Tag")
	}
}

// Nobody reads a document, or what is hidden of it, through the draft of another one; approval
// needs the permission to write.
func TestDraftsNeedPermission(t *testing.T) {
	e := ruled(t)
	eve := func() context.Context { return e.by("eve", nil, "editor") }
	ada := func() context.Context { return e.by("ada", nil, "writer") }
	must(e.projects.Create(eve(), storage.CreateInput{Key: "a", Data: object{"name": "A", "description": "ada", "price": "1", "tags": []any{}}}))(t)
	start := func(ctx context.Context, shared bool) draft {
		return must(e.projects.StartDraft(ctx, storage.StartDraftInput{Key: "a", Shared: &shared}))(t).Draft
	}
	of := start(eve(), true)
	if d := must(e.projects.Draft(ada(), of.ID()))(t); d != nil {
		t.Errorf("a draft of somebody else: %s", d.Content())
	}
	if page := must(e.projects.Drafts(ada(), nil, nil, nil, nil, nil))(t); len(page.Nodes) != 0 {
		t.Errorf("%d drafts of somebody else", len(page.Nodes))
	}
	own := start(ada(), false)
	if got := string(own.Content()); !strings.Contains(got, `"A"`) || strings.Contains(got, "price") && !strings.Contains(got, `"price":null`) {
		t.Error(got)
	}
	own = must(e.projects.SaveDraft(ada(), object{"draft": own.ID(), "expectedRevision": own.Revision(), "patch": object{"name": "B"}}))(t).(draftSuccess).Draft
	approve := func(ctx context.Context) (any, error) {
		return e.projects.ApproveDraft(ctx, storage.ApproveDraftInput{Draft: own.ID()})
	}
	_, err := approve(e.by("ada", nil))
	wantError(t, err, fault.CodeForbidden, "may be written by others only")
	if _, ok := must(approve(ada()))(t).(*storage.Success[*project]); !ok {
		t.Error("the draft was not approved")
	}
	if got := e.stored("a"); !strings.Contains(got, `"name":"B"`) || !strings.Contains(got, `"price":"1"`) {
		t.Error(got)
	}
	if d := must(e.projects.Draft(e.begin(), of.ID()))(t); d != nil {
		t.Error("a draft of somebody else, read by nobody")
	}
}

// A draft is what its author has changed of what he could read when he started it, whatever he
// may read later.
func TestDraftsKeepWhatTheirAuthorCouldNotSee(t *testing.T) {
	e := ruled(t)
	eve := func() context.Context { return e.by("eve", nil, "editor") }
	must(e.projects.Create(eve(), storage.CreateInput{Key: "a", Data: object{"name": "A", "description": "ada", "price": "1"}}))(t)
	d := must(e.projects.StartDraft(e.by("ada", nil, "writer"), storage.StartDraftInput{Key: "a"}))(t).Draft
	promoted := func() context.Context { return e.by("ada", nil, "editor") }
	d = must(e.projects.SaveDraft(promoted(), object{"draft": d.ID(), "expectedRevision": 1, "patch": object{"name": "B"}}))(t).(draftSuccess).Draft
	if got := paths(must(d.ChangesFromBase(promoted()))(t)); !slices.Equal(got, []string{"/name"}) {
		t.Errorf("changes from the base: %q", got)
	}
	must(e.projects.ApproveDraft(promoted(), storage.ApproveDraftInput{Draft: d.ID()}))(t)
	if got := e.stored("a"); !strings.Contains(got, `"name":"B"`) || !strings.Contains(got, `"price":"1"`) {
		t.Error(got)
	}

	// Who may not read the past of tags may approve, and lose the race, all the same.
	must(e.tags.Create(e.as("eve"), storage.CreateInput{Key: "t", Data: object{"name": "T"}}))(t)
	tagDraft := must(e.tags.StartDraft(e.as("ada"), storage.StartDraftInput{Key: "t"}))(t).Draft
	tagDraft = must(e.tags.SaveDraft(e.as("ada"), object{"draft": tagDraft.ID(), "expectedRevision": 1, "patch": object{"name": "U"}}))(t).(*storage.DraftSuccess[*tag]).Draft
	must(e.tags.Update(e.as("eve"), storage.UpdateInput{Key: "t", ExpectedVersion: 1, Patch: object{"related": []any{"t"}}}))(t)
	if got := paths(must(tagDraft.ChangesFromBase(e.as("ada")))(t)); !slices.Equal(got, []string{"/name"}) {
		t.Errorf("changes from the base: %q", got)
	}
	if c, ok := must(e.tags.ApproveDraft(e.as("ada"), storage.ApproveDraftInput{Draft: tagDraft.ID()}))(t).(*storage.Conflict[*tag]); !ok || c.ActualVersion != 2 {
		t.Errorf("%+v", c)
	}
}

// Who may not read the past goes on with the pages of now.
func TestPagesWithoutThePast(t *testing.T) {
	e := ruled(t)
	for _, key := range []string{"t1", "t2"} {
		must(e.tags.Create(e.as("eve"), storage.CreateInput{Key: key, Data: object{"name": key}}))(t)
	}
	page := must(e.tags.Page(e.as("ada"), nil, nil, ptr(1), nil, nil, nil, nil, nil))(t)
	must(e.tags.Update(e.as("eve"), storage.UpdateInput{Key: "t2", ExpectedVersion: 1, Patch: object{"name": "new"}}))(t)
	next := must(e.tags.Page(e.as("ada"), nil, nil, nil, page.PageInfo.EndCursor(), nil, nil, nil, nil))(t)
	if len(next.Nodes) != 1 || next.Nodes[0].Version() != 2 {
		t.Errorf("%+v", next.Nodes)
	}
	at := e.clock.advance(0) - 1_500_000
	_, err := e.tags.Page(e.as("ada"), nil, nil, nil, nil, nil, nil, &at, nil)
	wantError(t, err, fault.CodeForbidden, "the past of Tag")
}
