package plan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql/executor"

	"github.com/asof/asof/storage/driver"
)

// What the engine cannot do is the same error in the same places.
func TestFailures(t *testing.T) {
	queries := []string{
		`{ project(key: "a") { name } }`,
		`{ projects { nodes { key } } }`,
		`{ nodes(ids: ["Tag:x"]) { id } }`,
		`{ node(id: "Tag:x") { id } }`,
		`{ projects(where: {key: {in: ["a", "e"]}}) { totalCount nodes { key tags { key } } } }`,
		`{ projects(where: {key: {in: ["a", "e", "f"]}}) { nodes { key tags { key relatedTags { key } } licenses { name } } } }`,
		`{ project(key: "a") { tags(asOf: "1970-01-01T00:00:00.000012Z") { key } } }`,
		`{ project(key: "a") { tags { key } again: tags { key name } } }`,
		`{ project(key: "a") { tags { key } then: tags(asOf: "1970-01-01T00:00:00.000012Z") { key name } licenses { key } } }`,
		`{ project(key: "a") { versions { nodes { name } } } }`,
		`{ projects(where: {key: {in: ["a", "e", "f"]}}) { nodes { versions(first: 1) { nodes { name tags { name } } } } } }`,
		`{ projects(where: {key: {in: ["a", "e"]}}) { nodes { versions(first: 1) { totalCount nodes { key } } } } }`,
	}
	failures := map[string]func(*failing){
		"error":       func(f *failing) { f.err = driver.Errorf(driver.CodeUnavailable, "gone") },
		"cause":       func(f *failing) { f.err = errors.New("a secret") },
		"cancelled":   func(f *failing) { f.err = context.Canceled },
		"panic":       func(f *failing) { f.panic = "a secret" },
		"later error": func(f *failing) { f.after, f.err = 1, errors.New("a secret") },
		"later panic": func(f *failing) { f.after, f.panic = 1, "a secret" },
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			for _, query := range queries {
				p := newPair(t, catalogue()...)
				fail(p.engine)
				got := p.compare(query, "", "")
				if strings.Contains(got, "secret") || !strings.HasPrefix(name, "later") && !strings.Contains(got, `"code"`) {
					t.Errorf("%s: %s", query, got)
				}
			}
		})
	}
}

// What was not read because reading panicked is an error of all that want it, also
// of those that come later.
func TestPanicOfReferences(t *testing.T) {
	p := newPair(t, catalogue()...)
	p.engine.panic, p.engine.only = "a secret", "tags"
	got := p.compare(`{ a: project(key: "a") { tags { key } } b: project(key: "a") { name tags { key relatedTags { key } } } }`, "", "")
	if strings.Count(got, `"code":"INTERNAL"`) != 2 || strings.Contains(got, "secret") {
		t.Error(got)
	}
}

// The future is an error whatever it is that would be read then, by both executors.
func TestReferencesInTheFuture(t *testing.T) {
	p := newPair(t, catalogue()...)
	got := p.compare(`query ($t: DateTime = "2090-01-01T00:00:00Z") { some: project(key: "e") { tags(asOf: $t) { key } } none: project(key: "f", version: 1) { tags(asOf: $t) { key } }
		null: tag(key: "y", version: 1) { key relatedTags(asOf: $t) { key } } mistyped: tag(key: "bad") { key relatedTags(asOf: $t) { key } } }`, "", "")
	if !strings.HasPrefix(got, `{"some":null,"none":null,"null":{"key":"y","relatedTags":null},"mistyped":{"key":"bad","relatedTags":null}}`) || strings.Count(got, "AS_OF_IN_FUTURE") != 4 {
		t.Error(got)
	}
}

// What is read once for each level and collection, by both executors, and with the
// fields that are shown only.
func TestReadsAreFew(t *testing.T) {
	const then = `asOf: "1970-01-01T00:00:00.000012Z"`
	for _, test := range []struct {
		query          string
		planned, stock string
	}{
		{
			`{ projects(where: {key: {in: ["a", "e"]}}) { nodes { tags { name relatedTags { key } } more: tags { relatedTagKeys } licenses { name } } } }`,
			"query software, get tags 3, get licenses 2", // the related tags are among the tags
			"query software, get tags 3, get licenses 2",
		},
		{
			`{ tags(where: {key: {in: ["x", "y"]}}) { nodes { a: relatedTags { key } b: relatedTags(` + then + `) { key } c: relatedTags(asOf: "1970-01-01T00:00:00.000035Z") { key } } } }`,
			"query tags, get tags 3",
			"query tags, get tags 1, get tags 1, get tags 1", // fields do not know of each other
		},
		{`{ projects(first: 2) { n: totalCount ... on ProjectConnection { __typename totalCount } } }`, "count software", "query software, count software, count software"},
		{`{ projects(first: 2) { __typename } }`, "query software", "query software"}, // which is less than to count all
		{`{ projects(first: 2) { totalCount pageInfo { hasNextPage } } }`, "query software, count software", "query software, count software"},
		{`{ projects(first: 9) { totalCount nodes { key } } }`, "query software", "query software"}, // the page is all there is
		{
			`{ projects(where: {key: {in: ["a", "e"]}}) { nodes { versions(first: 1) { totalCount } } } }`,
			"query software, log software 1 without data, log software 1 without data",
			"query software, log software 1, log software 1",
		},
		{
			`{ projects(where: {key: {in: ["a", "e"]}}) { nodes { versions { nodes { key tags { name } } } tags { name } } } }`,
			// What versions refer to is read with what their documents refer to.
			"query software, log software 1, log software 1, get tags 8",
			"query software, log software 1, get tags 5, get tags 3, log software 1",
		},
	} {
		p := newPair(t, catalogue()...)
		for exec, want := range map[*executor.Executor]string{p.fast: test.planned, p.slow: test.stock} {
			p.engine.calls = nil
			p.do(exec, test.query, "")
			if got := strings.Join(p.engine.calls, ", "); got != want {
				t.Errorf("%s, planned %t:\n got %s\nwant %s", test.query, exec == p.fast, got, want)
			}
		}
	}
	p := newPair(t, catalogue()...)
	for query, want := range map[string]string{
		`{ project(key: "a") { key } }`: "",
		`{ project(key: "a") { name stars ... on Project { s: stars tagKeys currentRelease { tag } } } }`: "name stargazers_count tags current_release",
		`{ projects(orderBy: [{field: updatedAt}, {field: key}]) { nodes { name } edges { cursor } } }`:   "name updated_at",
		`{ nodes(ids: ["Tag:x"]) { ... on Project { stars } ... on Tag { name description } } }`:          "name description",
		`{ project(key: "a") { tags { name relatedTags { description } } } }`:                             "description name related_tags",
		`query ($yes: Boolean = false) { project(key: "a") { name stars @include(if: $yes) } }`:           "name",
		`{ project(key: "a") { versionInfo { changedFields } } }`:                                         "",
		`{ project(key: "a") { name versions { nodes { id version versionInfo { author { id } } } } } }`:  "",
		`{ project(key: "a") { name versions { nodes { stars } edges { node { tagKeys } } } } }`:          "stargazers_count tags",
	} {
		p.do(p.fast, query, "")
		if got := strings.Join(p.engine.fields, " "); got != want || p.engine.fields == nil {
			t.Errorf("%s reads %q, want %q", query, p.engine.fields, want)
		}
	}
}

// A reference to what was pruned is null, with the error, and the others are answered.
func TestPrunedReferences(t *testing.T) {
	p := newPair(t, catalogue()...)
	if err := p.engine.Rewrite(t.Context(), "tags", "x", []driver.Version{{Number: 1, Op: driver.OpPruned, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	const then = `asOf: "1970-01-01T00:00:00.000012Z"`
	got := p.compare(`{ projects(where: {key: {in: ["a", "e"]}}) { nodes { key tags(`+then+`) { key relatedTags { key } versions(first: 1) { nodes { version } } } now: tags { key } licenses { key } } } }`, "", "")
	if !strings.HasPrefix(got, `{"projects":{"nodes":[{"key":"a","tags":[null,{"key":"y",`) || !strings.Contains(got, `"now":[{"key":"x"}`) ||
		strings.Count(got, "HISTORY_PRUNED") != 2 || !strings.Contains(got, `"path":["projects","nodes",0,"tags",0]`) {
		t.Error(got)
	}
}

// A copied field is that of the source at the instant of the document: null where there is none, and,
// where it was pruned, with the error.
func TestCopiedFields(t *testing.T) {
	p := newPair(
		t, version{"platforms", "p", 10, `{"name":"old"}`}, version{"platforms", "q", 10, `{"name":"Q"}`},
		version{"readings", "a", 12, `{"platform":"p"}`}, version{"readings", "b", 12, `{"platform":"q"}`}, version{"readings", "c", 12, `{}`}, version{"readings", "d", 12, `{"platform":"gone"}`},
		version{"platforms", "p", 20, `{"name":"new"}`}, version{"platforms", "q", 20, `{"description":"without a name"}`}, version{"platforms", "p", 30, ""},
	)
	shown := func(at int) string {
		return p.compare(fmt.Sprintf(`{ readings(asOf: "1970-01-01T00:00:00.0000%dZ") { nodes { platformName } } }`, at), "", "")
	}
	for at, want := range map[int][4]string{15: {`"old"`, `"Q"`, "null", "null"}, 20: {`"new"`, "null", "null", "null"}, 35: {"null", "null", "null", "null"}} {
		text := `{"readings":{"nodes":[{"platformName":` + strings.Join(want[:], `},{"platformName":`) + `}]}}`
		if got := shown(at); !strings.HasPrefix(got, text) || strings.Contains(got, "error") {
			t.Errorf("as of %d: %s", at, got)
		}
	}
	if err := p.engine.Rewrite(t.Context(), "platforms", "p", []driver.Version{{Number: 1, Op: driver.OpPruned, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	got := shown(15)
	if !strings.HasPrefix(got, `{"readings":{"nodes":[{"platformName":null},{"platformName":"Q"}`) || !strings.Contains(got, "HISTORY_PRUNED") ||
		!strings.Contains(got, `"path":["readings","nodes",0,"platformName"]`) {
		t.Errorf("when it was pruned: %s", got)
	}
}
