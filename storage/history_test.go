package storage_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
)

func TestChangelogOfADocument(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"a","website_url":"w","secret":1,"tags":["x"],"current_release":{"tag":"v1","published_at":"2026-01-01","hidden":1}}`)
	at := e.load("software", "a", `{"tags":["y","x"],"name":"b","website_url":"w","secret":2,"current_release":{"tag":"v2","published_at":"2026-01-01","hidden":2}}`)
	e.load("software", "a", `{"name":"b","website_url":null,"secret":3,"tags":["y","x"],"current_release":{"tag":"v2"},"commit_history":{"2026-01":{"n":1}}}`)
	e.load("software", "a", ``)
	h := must(e.projects.History(e.begin(), "a"))(t)
	list := func(fields []string, first *int, after *string, last *int, before *string, from, to *driver.Instant) *storage.FieldChangeConnection {
		return must(e.store.DocumentChangelog(e.begin(), h.Document, fields, nil, from, to, first, after, last, before))(t)
	}
	want := []string{
		`REMOVE /name "b"`, `REMOVE /websiteUrl null`, `REMOVE /tags ["y","x"]`, `REMOVE /currentRelease {"tag":"v2"}`, `REMOVE /commitHistory {"2026-01":{"n":1}}`,
		`REPLACE /websiteUrl "w" -> null`, `REMOVE /currentRelease/publishedAt "2026-01-01"`, `ADD /commitHistory -> {"2026-01":{"n":1}}`,
		`REPLACE /name "a" -> "b"`, `ADD /tags/0 -> "y"`, `REPLACE /currentRelease/tag "v1" -> "v2"`,
		`ADD /name -> "a"`, `ADD /websiteUrl -> "w"`, `ADD /tags -> ["x"]`, `ADD /currentRelease -> {"tag":"v1","publishedAt":"2026-01-01"}`,
	}
	logs := e.engine.logs.Load()
	all := list(nil, nil, nil, nil, nil, nil, nil)
	if diff := cmp.Diff(want, lines(all.Nodes)); diff != "" {
		t.Fatal(diff)
	}
	if n := e.engine.logs.Load() - logs; n != 1 {
		t.Errorf("%d reads of the history", n)
	}
	if c := all.Nodes[8]; c.Version() != 2 || c.ChangedAt() != at || c.ChangedBy().ID != "importer" || c.DocumentKey() != "a" || c.DocumentType() != "Project" || c.Field != "name" {
		t.Errorf("change %+v", c)
	}
	if d := all.Nodes[8].Document(); d == nil || d.ID() != "Project:a@2" {
		t.Errorf("document %v", d)
	}
	if d := all.Nodes[0].Document(); d != nil {
		t.Errorf("a deletion left the document %v", d)
	}
	if got := lines(list([]string{"tags", "name"}, nil, nil, nil, nil, nil, nil).Nodes); cmp.Diff([]string{want[0], want[2], want[8], want[9], want[11], want[13]}, got) != "" {
		t.Errorf("of some fields: %v", got)
	}
	if got := lines(list(nil, nil, nil, nil, nil, &at, ptr(at+1)).Nodes); cmp.Diff(want[8:11], got) != "" {
		t.Errorf("half-open range: %v", got)
	}
	if got := list(nil, nil, nil, nil, nil, &at, &at).Nodes; len(got) != 0 {
		t.Errorf("empty range: %v", lines(got))
	}
	// Pages of every size, in both directions, give the same list.
	for size := 1; size <= 4; size++ {
		var got []string
		var after *string
		for {
			conn := list(nil, &size, after, nil, nil, nil, nil)
			got = append(got, lines(conn.Nodes)...)
			if after = conn.PageInfo.EndCursor(); !conn.PageInfo.HasNextPage {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("forward by %d: %s", size, diff)
		}
		got = nil
		var before *string
		for {
			conn := list(nil, nil, nil, &size, before, nil, nil)
			got = append(lines(conn.Nodes), got...)
			if before = conn.PageInfo.StartCursor(); !conn.PageInfo.HasPreviousPage {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("backward by %d: %s", size, diff)
		}
	}
	if n := must(all.TotalCount(e.begin()))(t); n != len(want) {
		t.Errorf("counted %d", n)
	}
	_, err := e.store.DocumentChangelog(e.begin(), h.Document, []string{"secret"}, nil, nil, nil, nil, nil, nil, nil)
	wantError(t, err, fault.CodeBadUserInput, "Project has no field")
	between := list(nil, ptr(10), ptr(all.Edges[2].Cursor()), nil, ptr(all.Edges[6].Cursor()), nil, nil)
	if diff := cmp.Diff(want[3:6], lines(between.Nodes)); diff != "" {
		t.Error(diff)
	}
}

func TestGlobalChangelog(t *testing.T) {
	e := newEnv(t)
	e.load("tags", "x", `{"name":"x"}`)
	e.create("a", object{"name": "a", "tags": []any{}})
	e.update("bob", "a", 1, object{"name": "b", "stars": 1})
	e.load("tags", "x", `{"name":"y"}`)
	start := must(e.store.Changelog(e.begin(), nil, nil, nil, nil, nil))(t)
	all := lines(start.Nodes)
	want := []string{`REPLACE /name "x" -> "y"`, `REPLACE /name "a" -> "b"`, `ADD /stars -> 1`, `ADD /name -> "a"`, `ADD /tags -> []`, `ADD /archived -> false`, `ADD /name -> "x"`}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Fatal(diff)
	}
	group := start.Nodes[1].ChangeGroup()
	for name, tt := range map[string]struct {
		where storage.ChangelogWhere
		want  []string
	}{
		"type":               {storage.ChangelogWhere{DocumentType: []string{"Tag"}}, []string{want[0], want[6]}},
		"key":                {storage.ChangelogWhere{DocumentType: []string{"Project"}, Key: ptr("a")}, want[1:6]},
		"field":              {storage.ChangelogWhere{Field: ptr("name")}, []string{want[0], want[1], want[3], want[6]}},
		"own field":          {storage.ChangelogWhere{Fields: []string{"stars"}}, want[2:3]},
		"author":             {storage.ChangelogWhere{Author: ptr("bob")}, want[1:3]},
		"operation":          {storage.ChangelogWhere{Operation: []storage.Operation{storage.OperationCreate}}, want[3:6]},
		"group":              {storage.ChangelogWhere{ChangeGroup: group}, want[1:3]},
		"nobody":             {storage.ChangelogWhere{Authors: []string{}}, nil},
		"no fields":          {storage.ChangelogWhere{Fields: []string{}}, nil},
		"no types":           {storage.ChangelogWhere{DocumentType: []string{}}, nil},
		"no types, a field":  {storage.ChangelogWhere{DocumentType: []string{}, Field: ptr("stars")}, nil},
		"no operations":      {storage.ChangelogWhere{Operation: []storage.Operation{}}, nil},
		"field and fields":   {storage.ChangelogWhere{Field: ptr("stars"), Fields: []string{"name"}}, nil},
		"field in fields":    {storage.ChangelogWhere{Field: ptr("stars"), Fields: []string{"name", "stars"}}, want[2:3]},
		"author and authors": {storage.ChangelogWhere{Author: ptr("bob"), Authors: []string{"ann"}}, nil},
		"author in authors":  {storage.ChangelogWhere{Author: ptr("bob"), Authors: []string{"ann", "bob"}}, want[1:3]},
		"key and keys":       {storage.ChangelogWhere{DocumentType: []string{"Project"}, Key: ptr("a"), Keys: []string{"b"}}, nil},
		"key in keys":        {storage.ChangelogWhere{DocumentType: []string{"Project"}, Key: ptr("a"), Keys: []string{"b", "a"}}, want[1:6]},
		"no keys":            {storage.ChangelogWhere{DocumentType: []string{"Tag"}, Keys: []string{}}, nil},
	} {
		conn := must(e.store.Changelog(e.begin(), &tt.where, nil, nil, nil, nil))(t)
		if diff := cmp.Diff(tt.want, lines(conn.Nodes)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	_, err := e.store.Changelog(e.begin(), &storage.ChangelogWhere{DocumentType: []string{"Tag"}, Keys: make([]string, 2000)}, nil, nil, nil, nil)
	wantError(t, err, fault.CodeBadUserInput, "more than 1000 keys")
	// A later write does not move the pages of a list that was begun.
	first := must(e.store.Changelog(e.begin(), nil, ptr(2), nil, nil, nil))(t)
	e.load("tags", "x", `{"name":"z"}`)
	second := must(e.store.Changelog(e.begin(), nil, ptr(10), first.PageInfo.EndCursor(), nil, nil))(t)
	if diff := cmp.Diff(want[2:], lines(second.Nodes)); diff != "" {
		t.Error(diff)
	}
	if n := must(second.TotalCount(e.begin()))(t); n != len(want) {
		t.Errorf("counted %d", n)
	}
	for part, where := range map[string]storage.ChangelogWhere{
		"exactly one documentType":                                {Key: ptr("a")},
		`where.field: no type of documents has a field "nothing"`: {Field: ptr("nothing")},
		`where.fields: Tag has no field "stars"`:                  {DocumentType: []string{"Tag"}, Field: ptr("name"), Fields: []string{"stars"}},
		`where.field: none of Tag, Project has a field "nothing"`: {DocumentType: []string{"Tag", "Project", "Tag"}, Field: ptr("nothing")},
		"there is no type":                                        {DocumentType: []string{"Nothing"}},
	} {
		_, err := e.store.Changelog(e.begin(), &where, nil, nil, nil, nil)
		wantError(t, err, fault.CodeBadUserInput, part)
	}
}

func TestVersions(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "0", "tags": []any{}})
	for i := range 4 {
		e.update([]string{"ann", "bob"}[i%2], "a", i+1, object{"name": fmt.Sprint(i + 1)})
	}
	d := e.get("a")
	numbers := func(author *string, first *int, after *string, last *int, before *string) (string, *storage.PageInfo, *storage.VersionConnection[*project]) {
		conn := must(e.projects.Versions(e.begin(), d.Document, nil, nil, author, nil, first, after, last, before))(t)
		out := ""
		for _, n := range conn.Nodes {
			out += fmt.Sprintf("%d=%s ", n.Version(), must(n.String(fName))(t))
		}
		return strings.TrimSpace(out), conn.PageInfo, conn
	}
	all, info, conn := numbers(nil, nil, nil, nil, nil)
	if all != "5=4 4=3 3=2 2=1 1=0" || info.HasNextPage || info.HasPreviousPage || must(conn.TotalCount(e.begin()))(t) != 5 {
		t.Errorf("all: %s", all)
	}
	e.update("eve", "a", 5, object{"name": "5"})
	_, _, later := numbers(nil, nil, nil, nil, nil)
	if len(later.Edges) != 5 {
		t.Errorf("a list of what was read before shows what came later: %d versions", len(later.Edges))
	}
	now := must(e.projects.Versions(e.begin(), e.get("a").Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
	_, err := e.projects.Versions(e.begin(), d.Document, nil, nil, nil, nil, ptr(2), ptr(conn.Edges[0].Cursor()), nil, ptr(now.Edges[3].Cursor()))
	wantError(t, err, fault.CodeBadUserInput, "belongs to a list read at")
	if got, info, _ := numbers(nil, ptr(2), ptr(conn.Edges[1].Cursor()), nil, nil); got != "3=2 2=1" || !info.HasNextPage || !info.HasPreviousPage {
		t.Errorf("after: %s %+v", got, info)
	}
	if got, info, _ := numbers(nil, nil, nil, ptr(2), ptr(conn.Edges[3].Cursor())); got != "4=3 3=2" || !info.HasNextPage || !info.HasPreviousPage {
		t.Errorf("before: %s %+v", got, info)
	}
	if got, info, _ := numbers(nil, ptr(2), ptr(conn.Edges[4].Cursor()), nil, nil); got != "" || info.HasNextPage || !info.HasPreviousPage {
		t.Errorf("behind the first version: %s %+v", got, info)
	}
	if got, _, conn := numbers(ptr("bob"), nil, nil, nil, nil); got != "5=4 3=2" || must(conn.TotalCount(e.begin()))(t) != 2 {
		t.Errorf("by bob: %s", got)
	}
	if changes := lines(must(conn.Edges[0].Changes())(t)); cmp.Diff([]string{`REPLACE /name "3" -> "4"`}, changes) != "" {
		t.Error(changes)
	}
	v := conn.Nodes[1].VersionInfo()
	if v.Number() != 4 || v.IsCurrent() || *v.SupersededAt() != conn.Nodes[0].VersionInfo().RecordedAt() || cmp.Diff([]string{"name"}, changedFields(t, v)) != "" || v.Operation() != storage.OperationUpdate {
		t.Errorf("version info %+v", v)
	}
}

// A cursor does not show what came after the document was read as of an instant,
// nor what the operation cannot read yet.
func TestCursorsOfOtherInstants(t *testing.T) {
	e := newEnv(t)
	then := e.load("software", "a", `{"name":"1"}`)
	for i := range 3 {
		e.load("software", "a", fmt.Sprintf(`{"name":"%d"}`, i+2))
	}
	lists := map[string]func(d *project, after *string) (n int, end *string, err error){
		"versions": func(d *project, after *string) (int, *string, error) {
			conn, err := e.projects.Versions(e.begin(), d.Document, nil, nil, nil, nil, ptr(1), after, nil, nil)
			if err != nil {
				return 0, nil, err
			}
			return must(conn.TotalCount(e.begin()))(t), conn.PageInfo.EndCursor(), nil
		},
		"changelog": func(d *project, after *string) (int, *string, error) {
			conn, err := e.store.DocumentChangelog(e.begin(), d.Document, nil, nil, nil, nil, ptr(1), after, nil, nil)
			if err != nil {
				return 0, nil, err
			}
			return must(conn.TotalCount(e.begin()))(t), conn.PageInfo.EndCursor(), nil
		},
	}
	past := must(e.projects.Get(e.begin(), "a", &then, nil))(t)
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			_, own, err := list(past, nil)
			if err != nil {
				t.Fatal(err)
			}
			all, end, err := list(e.get("a"), nil)
			if err != nil || all < 4 {
				t.Fatal(all, err)
			}
			e.load("software", "a", `{"name":"`+name+`"}`)
			for d, after := range map[*project]*string{past: own, e.get("a"): end} {
				if _, _, err := list(d, after); err != nil {
					t.Errorf("the next page as of %s: %v", d.At(), err)
				}
			}
			_, _, err = list(past, end)
			wantError(t, err, fault.CodeBadUserInput, "after: the cursor belongs to a list read at")
			for _, at := range []string{"-1", "0"} {
				_, _, err := list(past, forged(t, *own, at))
				wantError(t, err, fault.CodeBadUserInput, "is not a cursor of this list")
			}
		})
	}
}

// forged is a cursor with another instant.
func forged(t *testing.T, cursor, at string) *string {
	t.Helper()
	raw := must(base64.RawURLEncoding.DecodeString(cursor))(t)
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		t.Fatal(err)
	}
	parts[2] = json.RawMessage(at)
	return ptr(base64.RawURLEncoding.EncodeToString(must(json.Marshal(parts))(t)))
}

func TestBlame(t *testing.T) {
	e := newEnv(t)
	for _, data := range []string{
		`{"name":"a","tags":["x","y"],"current_release":{"tag":"v1","published_at":"2026-01-01"},"releases":[{"tag":"v0","published_at":"2025-01-01"}],"website_url":"w"}`,
		`{"name":"b","tags":["new","x","y"],"current_release":{"tag":"v2","published_at":"2026-01-01"},"releases":[{"tag":"v0","published_at":"2025-01-01"}],"website_url":"w"}`,
		`{"name":"b","tags":["new","y"],"current_release":{"tag":"v2","published_at":"2026-01-01"},"releases":[{"tag":"v1"},{"tag":"v0","published_at":"2025-01-02"}],"stargazers_count":1,"website_url":"w"}`,
		`{"name":"b","tags":["new","y"],"current_release":{"tag":"v2","published_at":"2026-01-01"},"releases":[{"tag":"v1"},{"tag":"v0","published_at":"2025-01-02"}],"stargazers_count":2,"undeclared":1}`,
	} {
		e.load("software", "a", data)
	}
	must(e.store.Blame(e.begin(), e.get("a").Document, nil))(t) // the first one looks up whether anything was pruned
	logs, gets := e.engine.logs.Load(), e.engine.gets.Load()
	d := e.get("a")
	blame := func(d *project, fields []string) []string {
		var out []string
		for _, b := range must(e.store.Blame(e.begin(), d.Document, fields))(t) {
			out = append(out, fmt.Sprintf("%s %s v%d", b.Path, b.Value, b.Version()))
		}
		return out
	}
	want := []string{
		`/name "b" v2`,
		`/tags ["new","y"] v3`, `/tags/0 "new" v2`, `/tags/1 "y" v1`,
		`/stars 2 v4`,
		`/currentRelease {"tag":"v2","publishedAt":"2026-01-01"} v2`, `/currentRelease/publishedAt "2026-01-01" v1`, `/currentRelease/tag "v2" v2`,
		`/releases [{"tag":"v1"},{"tag":"v0","publishedAt":"2025-01-02"}] v3`, `/releases/0/tag "v1" v3`, `/releases/1/publishedAt "2025-01-02" v3`, `/releases/1/tag "v0" v1`,
	}
	if diff := cmp.Diff(want, blame(d, nil)); diff != "" {
		t.Error(diff)
	}
	if l, g := e.engine.logs.Load()-logs, e.engine.gets.Load()-gets; l != 1 || g != 1 {
		t.Errorf("%d reads of the history, %d of the document", l, g)
	}
	if diff := cmp.Diff([]string{`/name "b" v2`, `/stars 2 v4`}, blame(d, []string{"stars", "name"})); diff != "" {
		t.Error(diff)
	}
	past := must(e.projects.Get(e.begin(), "a", nil, ptr(2)))(t)
	if got := blame(past, []string{"tags"}); cmp.Diff([]string{`/tags ["new","x","y"] v2`, `/tags/0 "new" v2`, `/tags/1 "x" v1`, `/tags/2 "y" v1`}, got) != "" {
		t.Errorf("of the past: %v", got)
	}
}

// Blame must not repeat a long path for each of many values below it.
func TestBlameOfLongPaths(t *testing.T) {
	e := newEnv(t)
	nested := func(x string) string {
		const levels = 30
		name := strings.Repeat("n", 1000)
		return `{"name":"a","commit_history":` + strings.Repeat(`{"`+name+`":`, levels) + "[" + strings.Repeat(x+",", 2000) + "0]" + strings.Repeat("}", levels) + "}"
	}
	e.load("software", "a", nested("1"))
	e.load("software", "a", nested("2"))
	paths := 0
	for _, b := range must(e.store.Blame(e.begin(), e.get("a").Document, nil))(t) {
		paths += len(b.Path)
		if b.Field == "commitHistory" && b.Version() != 2 {
			t.Errorf("a value of version 2 is said to be of %d", b.Version())
		}
	}
	if paths > len(nested("1")) {
		t.Errorf("%d bytes of paths for a document of %d", paths, len(nested("1")))
	}
}

func TestBlameEndsWithItsContext(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"a"}`)
	ctx, cancel := context.WithCancel(e.begin())
	d := e.get("a")
	cancel()
	logs := e.engine.logs.Load()
	_, err := e.store.Blame(ctx, d.Document, nil)
	wantError(t, err, fault.CodeUnavailable)
	if e.engine.logs.Load() != logs {
		t.Error("the history is read for nobody")
	}
}

func TestBlameStopsEarly(t *testing.T) {
	e := newEnv(t)
	for i := range 50 {
		e.load("software", "a", fmt.Sprintf(`{"name":"a","stargazers_count":%d}`, i))
	}
	d := e.get("a")
	read := 0
	e.engine.Engine = &counted{Engine: e.engine.Engine, entries: &read}
	if b := must(e.store.Blame(e.begin(), d.Document, []string{"stars"}))(t); len(b) != 1 || b[0].Version() != 50 {
		t.Errorf("blame %+v", b)
	}
	if read > 2 { // and the one before
		t.Errorf("read %d versions for one field that changed in the last", read)
	}
}

// Of a long history, blame reads only the versions that changed what is not explained yet.
func TestBlameOfALongHistory(t *testing.T) {
	e := newEnv(t)
	random := rand.New(rand.NewPCG(1, 2))
	values := map[string]string{"name": `"a"`}
	last := map[string]int{} // the version that set the member of the name
	versions := 0
	load := func(changed map[string]string) {
		versions++
		for name, value := range changed {
			if values[name] != value || last[name] == 0 {
				values[name], last[name] = value, versions
			}
		}
		parts := []string{}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			parts = append(parts, fmt.Sprintf("%q:%s", name, values[name]))
		}
		e.load("software", "a", "{"+strings.Join(parts, ",")+"}")
	}
	load(map[string]string{"name": `"a"`, "tags": `["x"]`, "website_url": `"w"`, "stargazers_count": "0"})
	for i := range 700 {
		changed := map[string]string{"stargazers_count": strconv.Itoa(i + 1)}
		for name, often := range map[string]int{"website_url": 100, "tags": 300, "current_release": 200} {
			if random.IntN(often) == 0 {
				changed[name] = map[string]string{"website_url": fmt.Sprintf(`"w%d"`, i), "tags": fmt.Sprintf(`["x","y%d"]`, i), "current_release": fmt.Sprintf(`{"tag":"v%d"}`, i)}[name]
			}
		}
		load(changed)
	}
	d := e.get("a")
	read := 0
	e.engine.Engine = &counted{Engine: e.engine.Engine, entries: &read}
	blame := func(fields ...string) (out []string) {
		for _, b := range must(e.store.Blame(e.begin(), d.Document, fields))(t) {
			out = append(out, fmt.Sprintf("%s v%d", b.Path, b.Version()))
		}
		return out
	}
	got := blame()
	for path, name := range map[string]string{"/name": "name", "/tags": "tags", "/websiteUrl": "website_url", "/stars": "stargazers_count", "/currentRelease": "current_release"} {
		if n := last[name]; n > 0 && !slices.Contains(got, fmt.Sprintf("%s v%d", path, n)) {
			t.Errorf("%s was set by version %d: %q", path, n, got)
		}
	}
	if !slices.Contains(got, "/tags/0 v1") {
		t.Errorf("an element that has not changed: %q", got)
	}
	if read > 150 {
		t.Errorf("read %d of %d versions", read, versions)
	}
	var each []string
	for _, f := range e.store.ByCollection()["software"].Object.Fields {
		each = append(each, blame(f.Name)...)
	}
	if diff := cmp.Diff(each, got); diff != "" {
		t.Errorf("all at once, and one by one (-one by one):\n%s", diff)
	}
}

func TestDiff(t *testing.T) {
	e := newEnv(t)
	first := e.load("software", "a", `{"name":"a","tags":["x"],"current_release":{"tag":"v1"},"undeclared":1}`)
	e.load("software", "a", `{"name":"b","tags":["y","x"],"website_url":"w","undeclared":2}`)
	e.load("software", "a", ``)
	e.load("software", "a", `{"name":"c"}`)
	ctx := e.begin()
	d := e.get("a")
	got := must(e.store.Diff(ctx, d.Document, storage.VersionRef{AsOf: &first}, &storage.VersionRef{Version: ptr(2)}))(t)
	if diff := cmp.Diff([]string{`REPLACE /name "a" -> "b"`, `ADD /websiteUrl -> "w"`, `ADD /tags/0 -> "y"`, `REMOVE /currentRelease {"tag":"v1"}`}, lines(must(got.Changes())(t))); diff != "" {
		t.Error(diff)
	}
	if got.From.Number() != 1 || got.To.Number() != 2 || string(got.Before()) != `{"name":"a","tags":["x"],"currentRelease":{"tag":"v1"}}` {
		t.Errorf("diff %+v, before %s", got, got.Before())
	}
	for from := 1; from <= 4; from++ {
		for to := 1; to <= 4; to++ {
			got := must(e.store.Diff(ctx, d.Document, storage.VersionRef{Version: &from}, &storage.VersionRef{Version: &to}))(t)
			if string(got.Before()) == "null" || string(got.After()) == "null" {
				// The library patches objects only: begin behind the step that makes one, end before the one that removes it.
				var ops []map[string]any
				if err := json.Unmarshal(got.JSONPatch(), &ops); err != nil {
					t.Fatal(err)
				}
				if from != to && ops[0]["path"] != "" && ops[len(ops)-1]["path"] != "" {
					t.Errorf("%d to %d does not make or remove the document: %s", from, to, got.JSONPatch())
				}
				continue
			}
			checkPatch(t, got)
		}
	}
	if def := must(e.store.Diff(ctx, d.Document, storage.VersionRef{Version: ptr(1)}, nil))(t); def.To.Number() != 4 {
		t.Errorf("to version %d by default", def.To.Number())
	}
	for _, tt := range []struct {
		ref  storage.VersionRef
		code fault.Code
	}{
		{storage.VersionRef{}, fault.CodeBadUserInput},
		{storage.VersionRef{Version: ptr(1), AsOf: &first}, fault.CodeAmbiguousVersion},
		{storage.VersionRef{Version: ptr(9)}, fault.CodeVersionNotFound},
		{storage.VersionRef{Version: ptr(-1)}, fault.CodeBadUserInput},
		{storage.VersionRef{AsOf: ptr(first + driver.Instant(time.Hour.Microseconds()))}, fault.CodeAsOfInFuture},
	} {
		_, err := e.store.Diff(ctx, d.Document, tt.ref, nil)
		wantError(t, err, tt.code)
		_, err = e.store.Diff(ctx, d.Document, storage.VersionRef{Version: ptr(2)}, &tt.ref)
		wantError(t, err, tt.code)
		_, err = e.store.Diff(ctx, d.Document, storage.VersionRef{Version: ptr(9)}, &tt.ref)
		wantError(t, err, fault.CodeVersionNotFound, "no version 9")
	}
}

func checkPatch(t *testing.T, d *storage.DocumentDiff) {
	t.Helper()
	p, err := jsonpatch.DecodePatch(d.JSONPatch())
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Apply(d.Before())
	if err != nil {
		t.Fatalf("%s does not apply to %s: %v", d.JSONPatch(), d.Before(), err)
	}
	if out, err = normal.Object(out); err != nil || !normal.Equal(out, d.After()) {
		t.Fatalf("%s makes %s of %s, not %s", d.JSONPatch(), out, d.Before(), d.After())
	}
}

// Random histories: each version's changes are a patch from the one before, the
// diff of any two versions is a patch, and blame agrees with a search by hand.
func TestRandomHistories(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	pick := func(options ...string) string { return options[r.IntN(len(options))] }
	for range 30 {
		e := newEnv(t)
		states := []string{}
		for range 12 {
			state := `{"name":"` + pick("a", "b") + `"`
			if r.IntN(2) == 0 {
				state += `,"stargazers_count":` + pick("1", "2", "null")
			}
			state += `,"tags":[` + pick("", `"x"`, `"x","y"`, `"y","x","z"`, `"z","y"`) + `]`
			if r.IntN(3) > 0 {
				state += `,"current_release":{"tag":"` + pick("v1", "v2") + `","hidden":` + pick("1", "2") + `,"notes":[` + pick("", `"n"`, `"m","n"`) + `]}`
			}
			state += `,"releases":[` + pick("", `{"tag":"a","published_at":"2026-01-01"}`, `{"tag":"b"},{"tag":"a","published_at":"2026-01-02"}`, `null,{"tag":"a"}`) + `]`
			state += `,"commit_history":` + pick("1", `{"a":1}`, `{"a":{"b":[1,2]}}`, `[[1],[2]]`) + `}`
			states = append(states, state)
			e.load("software", "a", state)
		}
		d := e.get("a")
		for range 10 {
			checkPatch(t, must(e.store.Diff(e.begin(), d.Document, storage.VersionRef{Version: ptr(1 + r.IntN(12))}, &storage.VersionRef{Version: ptr(1 + r.IntN(12))}))(t))
		}
		for _, b := range must(e.store.Blame(e.begin(), d.Document, nil))(t) {
			if b.Field != "name" && b.Field != "stars" {
				continue
			}
			stored := map[string]string{"name": "name", "stars": "stargazers_count"}[b.Field]
			want := len(states)
			value := func(n int) string {
				var m map[string]json.RawMessage
				if err := json.Unmarshal([]byte(states[n-1]), &m); err != nil {
					t.Fatal(err)
				}
				return string(m[stored])
			}
			for want > 1 && value(want-1) == value(len(states)) {
				want--
			}
			if b.Version() != want {
				t.Errorf("%s is blamed on %d, not %d, in %v", b.Path, b.Version(), want, states)
			}
		}
	}
}

// changedFields are those of a version, for everybody, or as a context's actor is told them.
func changedFields(t *testing.T, v *storage.VersionInfo, as ...context.Context) []string {
	t.Helper()
	return must(v.ChangedFields(append(as, t.Context())[0]))(t)
}

// The names of members are not copied for each version that is looked at.
func TestBlameOfLongNames(t *testing.T) {
	const members, versions = 500, 5
	e := newEnv(t)
	size := 0
	for v := range versions {
		var all []string
		for i := range members {
			value := 0
			if i == v {
				value = v
			}
			all = append(all, fmt.Sprintf(`"%s%d":%d`, strings.Repeat("n", 1000), i, value))
		}
		doc := `{"name":"A","commit_history":{` + strings.Join(all, ",") + `}}`
		e.load("software", "a", doc)
		size = len(doc)
	}
	d := e.get("a").Document
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	blame := must(e.store.Blame(e.begin(), d, nil))(t)
	runtime.ReadMemStats(&after)
	if took := int(after.TotalAlloc-before.TotalAlloc) / (versions * size); len(blame) < members || took > 4 {
		t.Errorf("%d values; %d times the versions were allocated", len(blame), took)
	}
}
