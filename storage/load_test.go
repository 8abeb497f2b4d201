package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

func TestLoadWorksOutWhatChanged(t *testing.T) {
	e := newEnv(t)
	now, err := e.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	base, _ := storage.InstantOf(now)
	v := func(key string, at driver.Instant, data string) driver.Version {
		out := driver.Version{Collection: "software", Key: key, RecordedAt: base - 100 + at, Author: "x", Deleted: data == ""}
		if data != "" {
			out.Data = []byte(data)
		}
		return out
	}
	batch := func() []driver.Version {
		return []driver.Version{
			v("a", 1, `{"name":"a","x":1}`), v("b", 1, `{"name":"b"}`), v("a", 2, `{"x":1,"name":"b","y":{"p":1,"q":2}}`),
			v("a", 3, `{"x":2,"name":"b","y":{"q":2,"p":1}}`), v("a", 4, ``), v("a", 5, `{"name":"c"}`),
		}
	}
	changed := func() []string {
		var out []string
		for v, err := range e.engine.Log(t.Context(), &driver.LogQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, v.Key+" "+strings.Join(v.Changed, ","))
		}
		return out
	}
	want := []string{"a name,x", "b name", "a name,y", "a x", "a name,x,y", "a name"}
	res, err := e.store.Load(t.Context(), batch())
	if err != nil || res.Added != 6 {
		t.Fatalf("%+v %v", res, err)
	}
	if diff := cmp.Diff(want, changed()); diff != "" {
		t.Fatal(diff)
	}
	// Again, in parts, by a store that knows nothing yet: all is skipped, the rest goes on.
	again, err := storage.New(e.engine, fixtureTypes())
	if err != nil {
		t.Fatal(err)
	}
	if res, err = again.Load(t.Context(), batch()[2:]); err != nil || res.Skipped != 4 {
		t.Fatalf("%+v %v", res, err)
	}
	if res, err = again.Load(t.Context(), []driver.Version{v("a", 6, `{"name":"c","z":1}`), v("b", 6, `{"name":"c"}`)}); err != nil || res.Added != 2 {
		t.Fatalf("%+v %v", res, err)
	}
	if diff := cmp.Diff(append(want, "a z", "b name"), changed()); diff != "" {
		t.Fatal(diff)
	}
	var refused *driver.LoadError
	if _, err = again.Load(t.Context(), []driver.Version{v("a", 7, `{"name":"d"}`), v("a", 2, `{"name":"e"}`)}); !errors.As(err, &refused) || refused.Index != 1 {
		t.Fatalf("%v", err)
	}
	if n := len(changed()); n != 8 {
		t.Errorf("a refused batch left %d versions", n)
	}
	if res, err = again.Load(t.Context(), []driver.Version{v("a", 8, `{"name":"d","z":1}`)}); err != nil || res.Added != 1 {
		t.Fatalf("%+v %v", res, err)
	}
	if all := changed(); all[8] != "a name" {
		t.Errorf("after a refused batch: %s", all[8])
	}
}

func TestValidate(t *testing.T) {
	project := fixtureTypes()[0]
	tests := []struct {
		data       string
		undeclared []string
		err        string
	}{
		{`{"name":"a","stargazers_count":1,"tags":["x"],"current_release":{"tag":"v","published_at":"2026-01-01"},"releases":[{"tag":null},null],"price":1.5,"commit_history":[{}]}`, nil, ""},
		{`{"name":"a","archived":null,"releases":null}`, nil, ""}, // a default, and a list
		{`{}`, nil, "name: expected String!, found nothing"},
		{`{"name":null}`, nil, "name: expected String!, found null"},
		{`{"name":"a","tags":null}`, nil, "tags: expected [Tag]!, found null"},
		{`{"name":"a","tags":["x",null]}`, nil, "tags[1]: expected a string (the key of a Tag), found null"},
		{`{"name":"a","x":1,"stars":2,"current_release":{"y":1},"releases":[{"y":1},{"y":2}]}`, []string{"x", "stars", "current_release.y", "releases.y"}, ""},
		{`[]`, nil, "a document is a JSON object, not a list"},
		{`{"name":5}`, nil, "name: expected String, found the number 5"},
		{`{"stargazers_count":1.5}`, nil, "stargazers_count: expected Int, found the number 1.5"},
		{`{"stargazers_count":2147483648}`, nil, "stargazers_count: expected Int"},
		{`{"tags":"x"}`, nil, `tags: expected [Tag], found the string "x"`},
		{`{"tags":["x",5]}`, nil, "tags[1]: expected a string (the key of a Tag), found the number 5"},
		{`{"releases":[{},{"published_at":"yesterday"}]}`, nil, `releases[1].published_at: expected Date (like "2006-01-02"), found the string "yesterday"`},
		{`{"current_release":[]}`, nil, "current_release: expected Release, found a list"},
		{`{"plan":"x"}`, nil, "plan: expected one of [FREE PAID]"},
		{`{"checkedAt":"2026-01-01T00:00:00"}`, nil, "checkedAt: expected DateTime"},
		{`{"archived":0}`, nil, "archived: expected Boolean, found the number 0"},
	}
	for _, tt := range tests {
		undeclared, err := project.Validate([]byte(tt.data))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %s", tt.data, err, tt.err)
			}
			continue
		}
		if diff := cmp.Diff(tt.undeclared, undeclared); err != nil || diff != "" {
			t.Errorf("%s: %v %s", tt.data, err, diff)
		}
	}
}

func TestCollectionsOf(t *testing.T) {
	types := []*record.Type{{Name: "A", Collection: "a", Fields: []record.Field{{Name: "x", Stored: "y", Kind: record.KindInt, List: true, Indexed: true}, {Name: "z", Kind: record.KindInt}}}}
	want := []driver.Collection{
		{Name: "asof_actors"},
		{Name: "asof_archive"},
		{Name: "asof_retention"},
		{Name: "asof_schemas"},
		{Name: "a", Indexes: []driver.Index{{Path: []string{"y"}, Kind: driver.KindInt, List: true}}},
		{Name: "a.drafts", Indexes: []driver.Index{{Path: []string{"documentKey"}, Kind: driver.KindString}}},
		{Name: "a.tags", Indexes: []driver.Index{{Path: []string{"documentKey"}, Kind: driver.KindString}, {Path: []string{"name"}, Kind: driver.KindString}}},
	}
	if diff := cmp.Diff(want, storage.CollectionsOf(types)); diff != "" {
		t.Error(diff)
	}
}
