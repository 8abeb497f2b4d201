package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
)

// The places in a JSON value are checked against both states: the schema does
// not know them.
func TestRestoreInsideJSONValues(t *testing.T) {
	const (
		then = `{"name":"A","current_release":{"tag":"v1"},"commit_history":{"l":[1,2,3],"m":{"0":"obj"},"s":{"a":1},"n":null,"o":{"p":{"q":1}},"gone":{"x":1}}}`
		now  = `{"name":"A","commit_history":{"l":[9,2,3],"m":["x","y","z"],"s":"text","n":{"a":1},"o":{"p":{"q":2,"r":3},"new":1}}}`
	)
	tests := []struct {
		path string
		bad  string
		want string // the JSON value after it
	}{
		{path: "/commitHistory/l/0", bad: "lies in a list; name the whole list, /commitHistory/l"},
		{path: "/commitHistory/m/0", bad: "lies in a list; name the whole list, /commitHistory/m"},
		{path: "/commitHistory/l/0/x", bad: "lies in a list; name the whole list, /commitHistory/l"},
		{path: "/commitHistory/s/a", bad: "/commitHistory/s was not an object in both versions"},
		{path: "/commitHistory/n/a", bad: "/commitHistory/n was not an object in both versions"},
		{path: "/commitHistory/nothing", bad: "there is nothing at /commitHistory/nothing, neither then nor now"},
		{path: "/commitHistory/nothing/below", bad: "there is nothing at /commitHistory/nothing/below"},
		{path: "/commitHistory/o/p/z", bad: "there is nothing at"},
		{path: "/commitHistory/l", want: `{"l":[1,2,3],"m":["x","y","z"],"s":"text","n":{"a":1},"o":{"p":{"q":2,"r":3},"new":1}}`},
		{path: "/commitHistory/s", want: `{"l":[9,2,3],"m":["x","y","z"],"s":{"a":1},"n":{"a":1},"o":{"p":{"q":2,"r":3},"new":1}}`},
		{path: "/commitHistory/o/p/q", want: `{"l":[9,2,3],"m":["x","y","z"],"s":"text","n":{"a":1},"o":{"p":{"q":1,"r":3},"new":1}}`},
		{path: "/commitHistory/o/new", want: `{"l":[9,2,3],"m":["x","y","z"],"s":"text","n":{"a":1},"o":{"p":{"q":2,"r":3}}}`},
		{path: "/commitHistory/gone/x", want: `{"l":[9,2,3],"m":["x","y","z"],"s":"text","n":{"a":1},"o":{"p":{"q":2,"r":3},"new":1},"gone":{"x":1}}`},
		{path: "/currentRelease/tag", want: `{"l":[9,2,3],"m":["x","y","z"],"s":"text","n":{"a":1},"o":{"p":{"q":2,"r":3},"new":1}}`},
	}
	for _, tt := range tests {
		e := newEnv(t)
		e.load("software", "a", then)
		e.load("software", "a", now)
		res, err := e.projects.Restore(e.begin(), storage.RestoreInput{
			Key: "a", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{tt.path},
		})
		if tt.bad != "" {
			wantError(t, err, fault.CodeBadUserInput, "input.paths[0]: ", tt.bad)
			continue
		}
		if s := asSuccess(t, res, err); !s.Changed {
			t.Errorf("%s: nothing was changed", tt.path)
		}
		if diff := cmp.Diff(tt.want, string(must(e.get("a").JSON(fHistory))(t))); diff != "" {
			t.Errorf("%s: %s", tt.path, diff)
		}
	}
}

// Each path looks through both states, so of a long document few parts can be restored
// at once; of a short one many.
func TestRestoreOfManyPaths(t *testing.T) {
	e := newEnv(t)
	for i, length := range []int{1_000_000, 1_000} {
		key := fmt.Sprint("k", i)
		for _, text := range []string{"x", "y"} {
			e.load("software", key, `{"name":"A","description":"`+strings.Repeat(text, length)+`","website_url":"`+text+`"}`)
		}
		ctx := e.begin()
		for _, tt := range []struct {
			paths   int
			refused bool
		}{{2_000, length == 1_000_000}, {4, false}} {
			res, err := e.projects.Restore(ctx, storage.RestoreInput{
				Key: key, ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}, Paths: slices.Repeat([]string{"/websiteUrl"}, tt.paths),
			})
			if tt.refused {
				wantError(t, err, fault.CodeBadUserInput, "input.paths[4]: the paths up to this one are too many to be restored at once ")
				continue
			}
			if s, ok := res.(*storage.Success[*project]); err != nil || ok && !s.Changed {
				t.Errorf("%d bytes, %d paths: %v", length, tt.paths, err)
			}
		}
	}
}

// A member of a document that is larger than what may be looked through can be restored alone.
func TestRestoreOfALargeDocument(t *testing.T) {
	e := newEnv(t, storage.WithLimits(storage.Limits{DocumentBytes: 16 << 20}))
	for _, site := range []string{"x", "y"} {
		e.load("software", "a", `{"name":"A","description":"`+strings.Repeat("d", 11<<20)+`","website_url":"`+site+`"}`)
	}
	restore := func(paths ...string) (any, error) {
		return e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}, Paths: paths})
	}
	_, err := restore("/websiteUrl", "/websiteUrl")
	wantError(t, err, fault.CodeBadUserInput, "input.paths[1]: the paths up to this one are too many")
	if res, err := restore("/websiteUrl"); err != nil || !res.(*storage.Success[*project]).Changed {
		t.Errorf("%+v, %v", res, err)
	}
}

// What lies deep is looked through at each step.
func TestRestoreOfDeepPaths(t *testing.T) {
	e := newEnv(t)
	const depth, paths = 300, 60
	chain := func(leaf string) string {
		return `"x":` + strings.Repeat(`{"x":`, depth) + leaf + strings.Repeat("}", depth)
	}
	doc := func(leaf string) string {
		return `{"name":"A","commit_history":{` + chain(`{"a":"`+strings.Repeat(leaf, 100_000)+`"}`) + `}}`
	}
	e.load("software", "a", doc("1"))
	e.load("software", "a", doc("2"))
	path := "/commitHistory" + strings.Repeat("/x", depth+1) + "/a"
	restore := func(paths ...string) error {
		_, err := e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}, Paths: paths})
		return err
	}
	wantError(t, restore(slices.Repeat([]string{path}, paths)...), fault.CodeBadUserInput, "input.paths[0]: the paths up to this one are too many")
	if err := restore("/commitHistory/x"); err != nil {
		t.Error(err)
	}
}

// What was stored in the past need not fit the schema: a restore does not make a
// document that can be read one that cannot.
func TestRestoreKeepsTheDocumentReadable(t *testing.T) {
	tests := []struct {
		name      string
		then, now string
		paths     []string
		bad       []string
	}{
		{"a required field", `{"stargazers_count":1}`, `{"name":"A"}`, nil, []string{"input.to: ", "version 1", "name: expected String!, found nothing", "with paths"}},
		{"in the schema's names", `{"name":"A","current_release":{"published_at":1}}`, `{"name":"A"}`, nil, []string{"currentRelease.publishedAt: expected Date"}},
		{"as it was until its deletion", `{"stargazers_count":1}`, ``, nil, nil},
		{"a list that there was not", `{"name":"A"}`, `{"name":"A","tags":["t"]}`, []string{"/tags"}, nil},
		{"by a path", `{"name":"A","stargazers_count":"many"}`, `{"name":"A","stargazers_count":1}`, []string{"/stars"}, []string{"input.paths: ", "stars: expected Int", "leave the path out"}},
		{"another path", `{"stargazers_count":1}`, `{"name":"A"}`, []string{"/stars"}, nil},
		{"not worse than it is", `{"stargazers_count":1}`, `{"stargazers_count":2}`, nil, nil},
		{"another wrong value", `{"name":"A","stargazers_count":"many"}`, `{"name":"A","stargazers_count":"few"}`, nil, nil},
		{"with a default", `{"name":"A"}`, `{"name":"B","archived":true}`, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			e.load("software", "a", tt.then)
			e.load("software", "a", tt.now)
			res, err := e.projects.Restore(e.begin(), storage.RestoreInput{
				Key: "a", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}, Paths: tt.paths,
			})
			if tt.bad != nil {
				wantError(t, err, fault.CodeBadUserInput, tt.bad...)
				return
			}
			if s := asSuccess(t, res, err); !s.Changed || s.Version != 3 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A deleted document comes back as it was, and no worse.
func TestRestoreOfWorseThanWasDeleted(t *testing.T) {
	e := newEnv(t)
	for _, data := range []string{`{"stargazers_count":1}`, `{"name":"A"}`, ``} {
		e.load("software", "a", data)
	}
	_, err := e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 3, To: &storage.VersionRef{Version: ptr(1)}})
	wantError(t, err, fault.CodeBadUserInput, "input.to: ", "name: expected String!", "create the document again")
	res, err := e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 3, To: &storage.VersionRef{Version: ptr(2)}})
	if s := asSuccess(t, res, err); !s.Changed || s.Version != 4 {
		t.Errorf("%+v", s)
	}
}

// A list that is longer than one may be, which an import has kept, is compared as one value,
// and is not restored.
func TestListsThatAreTooLong(t *testing.T) {
	e := newEnv(t, storage.WithLimits(storage.Limits{Details: 100_000}))
	list := func(n int) string { return "[0" + strings.Repeat(",0", n-1) + "]" }
	for _, n := range []int{30_001, 30_002, 30_000} {
		e.load("software", "a", `{"name":"a","commit_history":`+list(n)+`}`)
	}
	ctx, d := e.begin(), e.get("a").Document
	for _, c := range []struct{ from, to, changes int }{{1, 2, 1}, {2, 3, 1}, {3, 3, 0}} {
		got := must(e.store.Diff(ctx, d, storage.VersionRef{Version: &c.from}, &storage.VersionRef{Version: &c.to}))(t)
		if changes := must(got.Changes())(t); len(changes) != c.changes || len(changes) > 0 && changes[0].Path != "/commitHistory" {
			t.Errorf("from %d to %d: %d changes", c.from, c.to, len(changes))
		}
	}
	blame := must(e.store.Blame(ctx, d, []string{"commitHistory"}))(t)
	if n := len(blame); n != 30_001 || blame[n-1].Version() != 3 {
		t.Errorf("%d values are explained", n)
	}
	for _, paths := range [][]string{nil, {"/commitHistory"}} {
		_, err := e.projects.Restore(ctx, storage.RestoreInput{Key: "a", ExpectedVersion: 3, To: &storage.VersionRef{Version: ptr(1)}, Paths: paths})
		wantError(t, err, fault.CodeBadUserInput, "the lists would have 3000")
	}
}

// A path that leads deep takes as long as what is looked through at each of its steps, and not the
// path itself again at each.
func TestRestoreOfADeepPath(t *testing.T) {
	bytes := map[int]uint64{}
	for _, depth := range []int{100, 400} {
		e := newEnv(t)
		for _, site := range []string{"x", "y"} {
			e.load("software", "a", `{"name":"A","commit_history":`+strings.Repeat(`{"a":`, depth)+`"`+site+`"`+strings.Repeat("}", depth)+`}`)
		}
		ctx := e.begin()
		bytes[depth] = allocated(func() {
			_, err := e.projects.Restore(ctx, storage.RestoreInput{
				Key: "a", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{"/commitHistory" + strings.Repeat("/a", depth)},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	if bytes[400] > 32*bytes[100] {
		t.Errorf("%d bytes are allocated for a path of 400 steps, %d for one of 100", bytes[400], bytes[100])
	}
}
