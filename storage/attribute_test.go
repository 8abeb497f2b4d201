package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
)

// Each difference between two versions names the version that made it, in
// whatever direction they are compared.
func TestDifferencesNameTheirVersions(t *testing.T) {
	e := newEnv(t)
	for _, state := range []string{
		`{"name":"a","stargazers_count":1,"tags":["x","y"],"current_release":{"tag":"v1"}}`,                                   // 1
		`{"name":"b","stargazers_count":1,"tags":["x","y"],"current_release":{"tag":"v1"}}`,                                   // 2: name
		`{"name":"b","stargazers_count":2,"tags":["x","y"],"current_release":{"tag":"v1"}}`,                                   // 3: stars
		`{"name":"b","stargazers_count":2,"tags":["z","x","y"],"current_release":{"tag":"v1"}}`,                               // 4: a tag
		`{"name":"b","stargazers_count":2,"tags":["z","y"],"current_release":{"tag":"v1"}}`,                                   // 5: a tag less
		`{"name":"b","stargazers_count":3,"tags":["z","y","w"],"current_release":{"tag":"v2"}}`,                               // 6: stars, another tag, release
		`{"name":"b","stargazers_count":3,"tags":["z","y","w"],"current_release":{"tag":"v2"},"website_url":"u"}`,             // 7: website
		`{"name":"b","stargazers_count":3,"tags":["z","y","w"],"website_url":"u"}`,                                            // 8: no release
		`{"name":"b","stargazers_count":3,"tags":["z","y","w"],"website_url":"u","releases":[{"tag":"r","notes":["n"]}]}`,     // 9: a release
		`{"name":"b","stargazers_count":3,"tags":["z","y","w"],"website_url":"u","releases":[{"tag":"r","notes":["n","m"]}]}`, // 10: a note
	} {
		e.load("software", "a", state)
	}
	made := func(d *storage.DocumentDiff) string {
		var out []string
		for _, c := range must(d.Changes())(t) {
			out = append(out, fmt.Sprintf("%s %s %d", c.Op, c.Path, c.Version()))
		}
		return strings.Join(out, ", ")
	}
	d := e.get("a")
	for _, test := range []struct {
		from, to int
		want     string
	}{
		{1, 2, "REPLACE /name 2"},
		{2, 1, "REPLACE /name 2"},
		{5, 5, ""},
		{1, 4, "REPLACE /name 2, ADD /tags/0 4, REPLACE /stars 3"},
		{4, 1, "REPLACE /name 2, REMOVE /tags/0 4, REPLACE /stars 3"},
		{1, 8, "REPLACE /name 2, ADD /websiteUrl 7, REPLACE /tags/0 4, ADD /tags/2 6, REPLACE /stars 6, REMOVE /currentRelease 8"},
		{4, 6, "REMOVE /tags/1 5, ADD /tags/2 6, REPLACE /stars 6, REPLACE /currentRelease/tag 6"},
		{8, 10, "ADD /releases 10"},
		{9, 10, "ADD /releases/0/notes/1 10"},
	} {
		got := must(e.store.Diff(e.begin(), d.Document, storage.VersionRef{Version: &test.from}, &storage.VersionRef{Version: &test.to}))(t)
		if diff := cmp.Diff(test.want, made(got)); diff != "" {
			t.Errorf("%d to %d: %s", test.from, test.to, diff)
		}
	}
}

// A value that is there more than once was set by as many changes.
func TestDifferencesOfTheSameValue(t *testing.T) {
	for _, test := range []struct{ name, states, want string }{
		{"added twice", `{"tags":["a"]} {"tags":["a","x"]} {"tags":["a","x","x"]}`, "ADD /tags/1 2, ADD /tags/2 3"},
		{
			"set twice", `{"releases":[{"tag":"1"},{"tag":"2"}]} {"releases":[{"tag":"9"},{"tag":"2"}]} {"releases":[{"tag":"9"},{"tag":"9"}]}`,
			"REPLACE /releases/0/tag 2, REPLACE /releases/1/tag 3",
		},
		{"removed twice", `{"tags":["x","a","x"]} {"tags":["x","a"]} {"tags":["a"]}`, "REMOVE /tags/0 3, REMOVE /tags/1 2"},
		{"replaced, what replaced it removed", `{"tags":["x"]} {"tags":["y"]} {"tags":[]}`, "REMOVE /tags/0 2"},
		{"changed and removed, by a name like a place", `{"commit_history":{"2024":1}} {"commit_history":{"2024":2}} {"commit_history":{}}`, "REMOVE /commitHistory/2024 3"},
		{
			"changed and removed in an element",
			`{"releases":[{"tag":"x","notes":["n"]}]} {"releases":[{"tag":"y","notes":["n"]}]} {"releases":[{"notes":["n"]}]}`, "REMOVE /releases/0/tag 3",
		},
		{"one of two", `{"tags":["a"]} {"tags":["a","x"]} {"tags":["a","x"],"name":"n"}`, "ADD /name 3, ADD /tags/1 2"},
	} {
		e := newEnv(t)
		for state := range strings.SplitSeq(test.states, " ") {
			e.load("software", "a", state)
		}
		d := e.get("a")
		for _, back := range []bool{false, true} {
			from, to := ptr(1), ptr(3)
			if back {
				from, to = to, from
			}
			var got []string
			for _, c := range must(must(e.store.Diff(e.begin(), d.Document, storage.VersionRef{Version: from}, &storage.VersionRef{Version: to}))(t).Changes())(t) {
				got = append(got, fmt.Sprint(c.Version()))
			}
			var want []string
			for part := range strings.SplitSeq(test.want, ", ") {
				want = append(want, part[strings.LastIndexByte(part, ' ')+1:])
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, back %t: versions %s", test.name, back, diff)
			}
		}
	}
}

// As many differences as an operation may tell are explained in time that grows with
// them, and not with their square.
func TestManyDifferences(t *testing.T) {
	e := newEnv(t, storage.WithLimits(storage.Limits{Details: 100_000}))
	state := func(version int) string {
		var b strings.Builder
		for i := range 40_000 {
			fmt.Fprintf(&b, `,"%d-%d"`, version, i)
		}
		return `{"name":"n","tags":[` + b.String()[1:] + `]}`
	}
	for version := range 3 {
		e.load("software", "a", state(version))
	}
	changes := must(must(e.store.Diff(e.begin(), e.get("a").Document, storage.VersionRef{Version: ptr(1)}, nil))(t).Changes())(t)
	if len(changes) == 0 || changes[0].Version() != 3 || changes[len(changes)-1].Version() != 3 {
		t.Errorf("%d changes", len(changes))
	}
}

// The document was nothing before its first version.
func TestDiffFromNothing(t *testing.T) {
	e := newEnv(t)
	first := e.load("software", "a", `{"name":"a"}`)
	e.load("software", "a", `{"name":"b","stargazers_count":1}`)
	d, before := e.get("a"), first-1
	nothing := storage.VersionRef{AsOf: &before}
	got := must(e.store.Diff(e.begin(), d.Document, nothing, nil))(t)
	if got.From != nil || got.To.Number() != 2 || string(got.Before()) != "null" {
		t.Errorf("from %v to %v, before %s", got.From, got.To, got.Before())
	}
	if diff := cmp.Diff(`[{"op":"replace","path":"","value":{}},{"op":"add","path":"/name","value":"b"},{"op":"add","path":"/stars","value":1}]`, string(got.JSONPatch())); diff != "" {
		t.Error(diff)
	}
	for _, c := range must(got.Changes())(t) {
		if c.Version() != 2 {
			t.Errorf("%s by version %d", c.Path, c.Version())
		}
	}
	got = must(e.store.Diff(e.begin(), d.Document, storage.VersionRef{Version: ptr(1)}, &nothing))(t)
	if got.To != nil || string(got.After()) != "null" || !strings.HasSuffix(string(got.JSONPatch()), `{"op":"replace","path":"","value":null}]`) {
		t.Errorf("to %v, after %s by %s", got.To, got.After(), got.JSONPatch())
	}
	if c := must(got.Changes())(t); len(c) != 1 || c[0].Version() != 1 {
		t.Errorf("taken back: %v", lines(c))
	}
	got = must(e.store.Diff(e.begin(), d.Document, nothing, &nothing))(t)
	if got.From != nil || got.To != nil || string(got.JSONPatch()) != "[]" || len(must(got.Changes())(t)) != 0 {
		t.Errorf("nothing to nothing: %+v", got)
	}
}

// Long values are shortened between characters in errors, whatever these are.
func TestErrorsQuoteLongValues(t *testing.T) {
	for _, text := range []string{strings.Repeat("😀", 30), strings.Repeat("é", 60), strings.Repeat("a", 100)} {
		e := newEnv(t)
		e.load("software", "a", `{"name":"n","stargazers_count":"`+text+`"}`)
		_, err := e.get("a").OptInt(fStars)
		if err == nil || !utf8.ValidString(err.Error()) || strings.ContainsRune(err.Error(), 0) || !strings.Contains(err.Error(), "…") {
			t.Errorf("%v", err)
		}
	}
}
