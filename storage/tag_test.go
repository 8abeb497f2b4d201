package storage_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

func (e *env) tag(key string, version int, name string) error {
	e.t.Helper()
	_, err := e.projects.TagVersion(e.as("ann"), storage.TagVersionInput{Key: key, Version: version, Name: name})
	return err
}

func (e *env) untag(key, name string) error {
	e.t.Helper()
	_, err := e.projects.UntagVersion(e.as("bob"), storage.UntagVersionInput{Key: key, Name: name})
	return err
}

// byTag returns the keys of the documents with a tag.
func (e *env) byTag(ctx context.Context, name string, where object, order []*storage.OrderInput) []string {
	e.t.Helper()
	conn := must(e.projects.Page(ctx, where, order, ptr(100), nil, nil, nil, nil, &name))(e.t)
	if n := must(conn.TotalCount(ctx))(e.t); n != len(conn.Nodes) {
		e.t.Errorf("%d documents have the tag, of %d", len(conn.Nodes), n)
	}
	return keysOf(conn.Nodes)
}

// tagAll tags the last versions of documents.
func (e *env) tagAll(name string, keys []string) {
	e.t.Helper()
	for _, key := range keys {
		if err := e.tag(key, e.get(key).Version(), name); err != nil {
			e.t.Fatal(err)
		}
	}
}

func tagsOf(t *testing.T, tags []*storage.VersionTag, err error) (lines []string) {
	t.Helper()
	for _, tag := range must(tags, err)(t) {
		lines = append(lines, fmt.Sprintf("%s@%d %s by %s", must(tag.Key())(t), must(tag.Version())(t), must(tag.Name())(t), tag.TaggedBy().ID))
	}
	return lines
}

func TestTags(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "1"})
	e.update("ann", "a", 1, object{"name": "2"})
	e.create("b", object{"name": "1"})
	e.update("ann", "b", 1, object{"name": "3"})
	for _, tag := range []struct {
		key     string
		version int
		name    string
	}{{"a", 1, "stable"}, {"a", 2, "release-2024_1.0"}, {"a", 1, "again"}, {"b", 2, "stable"}} {
		if err := e.tag(tag.key, tag.version, tag.name); err != nil {
			t.Fatal(err)
		}
	}
	then := e.clock.advance(time.Second)
	ctx := e.begin()
	got := must(e.projects.State(ctx, "a", nil, nil, nil, ptr("stable")))(t)
	if got.ID() != "Project:a@1" || must(got.String(fName))(t) != "1" {
		t.Errorf("a by its tag: %s", got.ID())
	}
	if diff := cmp.Diff([]string{"a", "b"}, e.byTag(ctx, "stable", nil, nil)); diff != "" {
		t.Error(diff)
	}
	if got := e.byTag(ctx, "stable", object{"name": object{"eq": "2"}}, nil); len(got) != 0 {
		t.Errorf("a list by a tag has found by a value of another version: %v", got)
	}
	history := must(e.projects.History(ctx, "a"))(t)
	queries, found := e.engine.queries.Load(), e.engine.found.Load()
	for n, want := range [][]string{
		{"a@2 release-2024_1.0 by ann"}, {"a@1 again by ann", "a@1 stable by ann"}, {"a@2 release-2024_1.0 by ann"},
	} {
		page := must(e.projects.Versions(ctx, history.Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
		tags, err := page.Nodes[n%2].VersionInfo().Tags(ctx)
		if diff := cmp.Diff(want, tagsOf(t, tags, err)); diff != "" {
			t.Error(diff)
		}
		if got := e.engine.found.Load() - found; got != int64(1+min(n, 1)*3) {
			t.Errorf("%d tags were read, want those of a version, and then all", got)
		}
	}
	if n := e.engine.queries.Load() - queries; n != 2 {
		t.Errorf("the tags of three versions took %d reads", n)
	}
	tags, err := history.Tags(ctx)
	if diff := cmp.Diff([]string{"a@1 again by ann", "a@2 release-2024_1.0 by ann", "a@1 stable by ann"}, tagsOf(t, tags, err)); diff != "" {
		t.Error(diff)
	}
	tags, err = got.VersionInfo().Tags(ctx)
	if diff := cmp.Diff([]string{"a@1 again by ann", "a@1 stable by ann"}, tagsOf(t, tags, err)); diff != "" {
		t.Error(diff)
	}

	// It does not move, is there once, and can be set anew after it was removed.
	wantError(t, e.tag("a", 2, "stable"), fault.CodeBadUserInput, "remove it first")
	again := must(e.projects.TagVersion(e.as("eve"), storage.TagVersionInput{Key: "a", Version: 1, Name: "stable"}))(t)
	if again.Changed || again.Tag.TaggedBy().ID != "ann" {
		t.Errorf("a tag that is there was set by %s, changed: %t", again.Tag.TaggedBy().ID, again.Changed)
	}
	if err := e.untag("a", "stable"); err != nil {
		t.Fatal(err)
	}
	wantError(t, e.untag("a", "stable"), fault.CodeNotFound, "no tag")
	ctx = e.begin()
	if got := must(e.projects.State(ctx, "a", nil, nil, nil, ptr("stable")))(t); got != nil {
		t.Errorf("by a tag that was removed: %s", got.ID())
	}
	if diff := cmp.Diff([]string{"b"}, e.byTag(ctx, "stable", nil, nil)); diff != "" {
		t.Error(diff)
	}
	past := must(e.projects.Get(ctx, "a", &then, nil))(t)
	tags, err = past.VersionInfo().Tags(ctx)
	if diff := cmp.Diff([]string{"a@2 release-2024_1.0 by ann"}, tagsOf(t, tags, err)); diff != "" {
		t.Error(diff)
	}
	if err := e.tag("a", 2, "stable"); err != nil {
		t.Error(err)
	}

	// What was deleted since is there by its tag.
	must(e.projects.Delete(e.as("ann"), storage.DeleteInput{Key: "b", ExpectedVersion: 2}))(t)
	if diff := cmp.Diff([]string{"a", "b"}, e.byTag(e.begin(), "stable", nil, nil)); diff != "" {
		t.Error(diff)
	}

	for _, name := range []string{"", "a b", "é", "a/b", strings.Repeat("x", 101), "a\n"} {
		wantError(t, e.tag("a", 1, name), fault.CodeBadUserInput, "name of a tag")
	}
	wantError(t, e.tag("a", 9, "x"), fault.CodeVersionNotFound)
	wantError(t, e.tag("a", 0, "x"), fault.CodeBadUserInput)
	wantError(t, e.tag("nobody", 1, "x"), fault.CodeNotFound)
	wantError(t, e.tag("b", 3, "x"), fault.CodeNotFound) // a deletion
	ctx = e.begin()
	now, _ := storage.InstantOf(ctx)
	for i, err := range []error{
		second(e.projects.State(ctx, "a", &now, nil, nil, ptr("x"))), second(e.projects.State(ctx, "a", nil, ptr(1), nil, ptr("x"))), second(e.projects.State(ctx, "a", nil, nil, ptr("d"), ptr("x"))),
		second(e.projects.Page(ctx, nil, nil, nil, nil, nil, nil, &now, ptr("x"))),
	} {
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.CodeAmbiguousVersion {
			t.Errorf("%d: %v", i, err)
		}
	}
	if kept, _, _ := storage.Held(must(e.engine.Stats(t.Context()))(t)); kept != 1 {
		t.Errorf("%d documents, with tags", kept)
	}
}

func second[T any](_ T, err error) error { return err }

// Pages of a list by a tag are of the tags and versions that were there for the first.
func TestPagesByTag(t *testing.T) {
	e := newEnv(t)
	for i := range 7 {
		key := fmt.Sprintf("k%d", i)
		e.create(key, object{"name": "x", "stars": i / 2})
		if err := e.tag(key, 1, "t"); err != nil {
			t.Fatal(err)
		}
		e.update("ann", key, 1, object{"stars": 100 - i})
	}
	order := []*storage.OrderInput{{Field: "stars", Direction: storage.Desc}}
	want := []string{"k6", "k4", "k5", "k2", "k3", "k0", "k1"}
	var got []string
	var after *string
	for {
		conn := must(e.projects.Page(e.begin(), nil, order, ptr(2), after, nil, nil, nil, ptr("t")))(t)
		got = append(got, keysOf(conn.Nodes)...)
		if after = conn.PageInfo.EndCursor(); !conn.PageInfo.HasNextPage {
			break
		}
		if len(got) == 2 {
			if err := errors.Join(e.untag("k3", "t"), e.tag("k0", 2, "u")); err != nil {
				t.Fatal(err)
			}
			_, err := e.projects.Page(e.begin(), nil, order, ptr(2), after, nil, nil, nil, ptr("u"))
			wantError(t, err, fault.CodeBadUserInput, "other arguments")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	back := must(e.projects.Page(e.begin(), nil, order, nil, nil, ptr(2), after, nil, ptr("t")))(t)
	if diff := cmp.Diff([]string{"k3", "k0"}, keysOf(back.Nodes)); diff != "" || !back.PageInfo.HasPreviousPage {
		t.Error(diff)
	}
}

// A cursor of a list by tag goes on when the type's past is no longer complete: what has a tag
// is there.
func TestPagesByTagBehindTheHorizon(t *testing.T) {
	e := newEnvOf(t, keepTypes(&record.Keep{Versions: 1}), nil)
	for _, key := range []string{"a", "b"} {
		e.create(key, object{"name": "x"})
		if err := e.tag(key, 1, "t"); err != nil {
			t.Fatal(err)
		}
	}
	first := must(e.projects.Page(e.begin(), nil, nil, ptr(1), nil, nil, nil, nil, ptr("t")))(t)
	e.clock.advance(time.Minute)
	for version := range 2 {
		e.update("ann", "a", version+1, object{"stars": version})
	}
	e.clock.advance(2 * record.Grace)
	if pruneAll(t, e, false) == 0 {
		t.Fatal("nothing was pruned")
	}
	next := must(e.projects.Page(e.begin(), nil, nil, ptr(1), first.PageInfo.EndCursor(), nil, nil, nil, ptr("t")))(t)
	if diff := cmp.Diff([]string{"b"}, keysOf(next.Nodes)); diff != "" || must(next.TotalCount(e.begin()))(t) != 2 {
		t.Error(diff)
	}
}

// Versions with tags are not pruned, also those that are set and removed meanwhile; what had one
// is pruned when it is removed.
func TestTagsKeep(t *testing.T) {
	e, twin := newEnvOf(t, keepTypes(&record.Keep{Versions: 2}), nil), newEnv(t)
	r := rand.New(rand.NewPCG(11, 3))
	keys := []string{"a", "b", "c"}
	last, tagged := map[string]int{}, map[string]int{} // by key, and by key and tag
	for range 60 {
		key := keys[r.IntN(len(keys))]
		wait := time.Duration(r.Int64N(int64(record.Grace)))
		e.clock.advance(wait)
		twin.clock.advance(wait)
		switch r.IntN(4) {
		case 0, 1:
			data := fmt.Sprintf(`{"name":"%d","tags":[]}`, r.IntN(1000))
			e.load("software", key, data)
			twin.load("software", key, data)
			last[key]++
		case 2:
			name := string(rune('p' + r.IntN(4)))
			if tagged[key+name] > 0 {
				if err := e.untag(key, name); err != nil {
					t.Fatal(err)
				}
				delete(tagged, key+name)
				break
			}
			n := max(last[key]-r.IntN(3), 1)
			if last[key] == 0 {
				break
			}
			switch err := e.tag(key, n, name); {
			case err == nil:
				tagged[key+name] = n
			case earliestOf(t, err) == 0 || n > last[key]-2:
				t.Fatal(err)
			}
		default:
			pruneAll(t, e, false)
		}
	}
	for range 2 {
		e.clock.advance(2 * record.Grace)
		twin.clock.advance(2 * record.Grace)
		due := pruneAll(t, e, true)
		if n := pruneAll(t, e, false); n != due {
			t.Errorf("%d versions were pruned, %d were said to be due", n, due)
		}
		ctx, all := e.begin(), twin.begin()
		project := e.store.Types()[0]
		pins := map[string]bool{}
		for of, n := range tagged {
			pins[fmt.Sprint(of[:1], n)] = true
			name := of[1:]
			got := must(e.projects.State(ctx, of[:1], nil, nil, nil, &name))(t)
			want := must(twin.store.Document(all, twin.store.Types()[0], of[:1], nil, &n, nil))(t)
			if got == nil || must(got.String(fName))(t) != must(want.String(fName))(t) || got.Version() != n {
				t.Errorf("%s by its tag %s, on version %d: %v", of[:1], name, n, got)
			}
		}
		for _, key := range keys {
			left := 0
			for n := 1; n <= last[key]; n++ {
				got, err := e.store.Document(ctx, project, key, nil, &n, nil)
				is := earliestOf(t, err) == 0
				if want := n > last[key]-2 || pins[fmt.Sprint(key, n)]; is != want {
					t.Errorf("%s, version %d of %d: %v, want %t", key, n, last[key], err, want)
				}
				if is {
					left++
					if want := must(twin.store.Document(all, twin.store.Types()[0], key, nil, &n, nil))(t); must(got.String(fName))(t) != must(want.String(fName))(t) {
						t.Errorf("%s, version %d", key, n)
					}
				}
			}
			history := must(e.projects.History(ctx, key))(t)
			list := must(e.store.Versions(ctx, history.Document, &storage.VersionsArgs{First: ptr(100)}))(t)
			if total := must(list.TotalCount(ctx))(t); len(list.Docs) != left || total != left || must(history.PrunedVersions(ctx))(t) != last[key]-left {
				t.Errorf("%s has %d versions, total %d, want %d", key, len(list.Docs), total, left)
			}
			for _, b := range must(e.store.Blame(ctx, history.Document, nil))(t) {
				if b.Version() < last[key]-1 {
					t.Errorf("%s: %s is of version %d", key, b.Path, b.Version())
				}
			}
		}
		for of := range tagged {
			if err := e.untag(of[:1], of[1:]); err != nil {
				t.Fatal(err)
			}
		}
		clear(tagged)
	}
	if n := pruneAll(t, e, false); n != 0 {
		t.Errorf("%d more", n)
	}
}

// A version that is tagged while it is pruned is either kept, or the tag is refused and gone.
func TestTagsRaceWithPruning(t *testing.T) {
	prepare := func() *env {
		e := newEnvOf(t, keepTypes(&record.Keep{Versions: 1}), nil)
		for i := range 3 {
			e.load("software", "a", fmt.Sprintf(`{"name":"%d","tags":[]}`, i))
		}
		return e
	}
	read := func(e *env, version int, name string) {
		t.Helper()
		got, err := e.projects.State(e.begin(), "a", nil, nil, nil, &name)
		if err != nil || got == nil || got.Version() != version {
			t.Errorf("by the tag %s: %v, %v", name, got, err)
		}
	}

	// The tag is committed between the pruner's decision and the horizon's rise.
	e := prepare()
	e.clock.advance(2 * record.Grace)
	var refused error
	e.engine.beforeCommit = func() { refused = e.tag("a", 1, "late") }
	if n := pruneAll(t, e, false); n != 2 {
		t.Errorf("%d were pruned", n)
	}
	if earliestOf(t, refused) == 0 {
		t.Error("what is about to be pruned was tagged")
	}
	if got := must(e.projects.State(e.begin(), "a", nil, nil, nil, ptr("late")))(t); got != nil {
		t.Error("the tag is there")
	}

	// The pruner comes between the reading of the version and the commit of its tag.
	e = prepare()
	e.clock.advance(2 * record.Grace)
	e.engine.beforeCommit = func() { pruneAll(t, e, false) }
	if err := e.tag("a", 2, "late"); earliestOf(t, err) == 0 {
		t.Error("what was pruned was tagged")
	}

	// It comes after the commit, and before it is looked at what is kept.
	e = prepare()
	e.clock.advance(record.Grace - 10*time.Second)
	if err := e.tag("a", 1, "early"); err != nil {
		t.Fatal(err)
	}
	e.clock.advance(2 * record.Grace)
	e.engine.beforeCommit = func() {
		e.engine.beforeCommit = func() {}
		if err := e.tag("a", 1, "second"); err != nil { // kept by the other one
			t.Error(err)
		}
	}
	if n := pruneAll(t, e, false); n != 1 {
		t.Errorf("%d were pruned", n)
	}
	if err := e.untag("a", "early"); err != nil {
		t.Fatal(err)
	}
	e.clock.advance(2 * record.Grace)
	if n := pruneAll(t, e, false); n != 0 {
		t.Errorf("%d were pruned", n)
	}
	read(e, 1, "second")
}

// A tag of a version that somebody may not read does not exist for him, and who may not write sets none.
func TestTagsNeedPermission(t *testing.T) {
	types := fixtureTypes()
	types[0].Auth = record.Auth{Rows: "description = $sub", Write: []string{"editor"}}
	types[0].Fields[fWebsite].Auth.Read = []string{"nobody"}
	e := newEnvOf(t, types, nil)
	e.load("software", "a", `{"name":"1","description":"ada","tags":[]}`)
	e.load("software", "a", `{"name":"2","description":"bob","tags":[]}`)
	as := func(name string, roles ...string) context.Context {
		return storage.WithActor(e.begin(), storage.Actor{ID: name, Roles: roles})
	}
	set := func(ctx context.Context, version int, name string) error {
		return second(e.projects.TagVersion(ctx, storage.TagVersionInput{Key: "a", Version: version, Name: name}))
	}
	wantError(t, set(as("ada"), 1, "x"), fault.CodeForbidden)
	wantError(t, set(as("ada", "editor"), 2, "x"), fault.CodeNotFound)
	if err := errors.Join(set(as("ada", "editor"), 1, "of-ada"), set(as("bob", "editor"), 2, "of-bob")); err != nil {
		t.Fatal(err)
	}
	for who, may := range map[string]string{"ada": "of-ada", "bob": "of-bob"} {
		for _, name := range []string{"of-ada", "of-bob"} {
			ctx := as(who, "editor")
			got := must(e.projects.State(ctx, "a", nil, nil, nil, &name))(t)
			list := e.byTag(ctx, name, nil, nil)
			if name == may != (got != nil) || name == may != (len(list) == 1) {
				t.Errorf("%s by %s: %v, %v", who, name, got, list)
			}
			if name != may {
				err := second(e.projects.UntagVersion(ctx, storage.UntagVersionInput{Key: "a", Name: name}))
				wantError(t, err, fault.CodeNotFound)
			}
		}
		_, err := e.projects.Page(as(who), object{"websiteUrl": object{"isNull": true}}, nil, nil, nil, nil, nil, nil, ptr("of-ada"))
		wantError(t, err, fault.CodeForbidden)
	}
	history := must(e.projects.History(as("bob"), "a"))(t)
	ctx := as("bob")
	tags, err := history.Tags(ctx)
	if got := tagsOf(t, tags, err); !slices.Equal(got, []string{"a@2 of-bob by bob"}) {
		t.Errorf("bob sees %v", got)
	}
	wantError(t, second(e.projects.UntagVersion(as("bob"), storage.UntagVersionInput{Key: "a", Name: "of-bob"})), fault.CodeForbidden)
}

// Setting a tag says that nothing is known where its commit was not confirmed.
func TestTagUnconfirmed(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "1"})
	e.engine.commitErr = driver.Errorf(driver.CodeUnavailable, "gone")
	wantError(t, e.tag("a", 1, "x"), fault.CodeUnavailable, "did not confirm")
}

// What a list by a tag is looked through for ends with the operation, within a document.
func TestListsByTagEndWithTheirContext(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "1"})
	e.tagAll("x", []string{"a"})
	conditions := make([]any, 100)
	for i := range conditions {
		conditions[i] = object{"description": object{"containsFold": fmt.Sprint("z", i)}}
	}
	ctx, cancel := context.WithCancel(e.begin())
	e.engine.Engine = &leaving{Engine: e.engine.Engine, cancel: cancel}
	_, err := e.store.Page(ctx, e.store.Types()[0], &storage.PageArgs{Tag: ptr("x"), Where: object{"or": conditions}})
	wantError(t, err, fault.CodeUnavailable, "")
}

// An import may add more tags of a document than can be set: they are not all read, and
// can be removed.
func TestMoreTagsThanCanBeSet(t *testing.T) {
	const most = 10_000
	e := newEnv(t)
	e.load("software", "a", `{"name":"A"}`)
	var tags []driver.Version
	for i := range most + 1 {
		tags = append(tags, driver.Version{
			Collection: "software.tags", Key: fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "t%d\x00a", i))), RecordedAt: e.clock.advance(time.Second), Author: "importer",
			Data: fmt.Appendf(nil, `{"documentKey":"a","name":"t%d","number":1}`, i),
		})
	}
	for _, refused := range []bool{false, true} {
		part := tags[:most]
		if refused {
			part = tags[most:]
		}
		if _, err := e.store.Load(t.Context(), part); err != nil {
			t.Fatal(err)
		}
		ctx := e.begin()
		for name, read := range map[string]func() ([]*storage.VersionTag, error){
			"document": func() ([]*storage.VersionTag, error) {
				return must(e.projects.History(ctx, "a"))(t).Tags(ctx)
			},
			"version": func() ([]*storage.VersionTag, error) {
				return e.get("a").VersionInfo().Tags(ctx)
			},
		} {
			if found, err := read(); refused {
				wantError(t, err, fault.CodeQueryTooComplex, `Project "a" has more than 10000 tags`)
			} else if err != nil || len(found) != most {
				t.Errorf("%s: %d tags, %v", name, len(found), err)
			}
		}
	}
	if err := e.untag("a", "t7"); err != nil {
		t.Fatal(err)
	}
	ctx := e.begin()
	if found := must(must(e.projects.History(ctx, "a"))(t).Tags(ctx))(t); len(found) != most {
		t.Errorf("%d tags are left", len(found))
	}
}
