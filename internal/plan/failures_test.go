package plan_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"

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

// Interceptors of root fields see planned operations, and may change what they
// answer.
func TestRootFieldInterceptors(t *testing.T) {
	const query = `{ a: project(key: "a") { name } b: tag(key: "nobody") { name } tags(first: 1) { nodes { key } } }`
	tests := map[string]graphql.RootFieldMiddleware{
		"look on": func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler {
			if graphql.GetRootFieldContext(ctx).Object == "" || graphql.GetFieldContext(ctx).Object != "Query" {
				t.Error("no context")
			}
			return next(ctx)
		},
		"replace": func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler {
			next(ctx)
			return graphql.MarshalString("else")
		},
		"wrap": func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler {
			return graphql.Array{next(ctx), graphql.True}
		},
		"refuse": func(context.Context, graphql.RootResolver) graphql.Marshaler { return graphql.Null },
	}
	for name, around := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, catalogue()...)
			p.slow.AroundRootFields(around)
			p.fast.AroundRootFields(around)
			p.compare(query, "", "")
		})
	}
}

// References are read once for each level and collection, and with the fields
// that are shown only.
func TestReadsAreFew(t *testing.T) {
	p := newPair(t, catalogue()...)
	p.engine.gets = 0
	p.do(p.fast, `{ projects(where: {key: {in: ["a", "e"]}}) { nodes { tags { name relatedTags { key } } more: tags { relatedTagKeys } licenses { name } } } }`, "")
	if p.engine.gets != 2 { // tags, whose related tags are among them, and licenses
		t.Errorf("%d reads of references", p.engine.gets)
	}
	for query, want := range map[string]string{
		`{ project(key: "a") { key } }`: "",
		`{ project(key: "a") { name stars ... on Project { s: stars tagKeys currentRelease { tag } } } }`: "name stargazers_count tags current_release",
		`{ projects(orderBy: [{field: updatedAt}, {field: key}]) { nodes { name } edges { cursor } } }`:   "name updated_at",
		`{ nodes(ids: ["Tag:x"]) { ... on Project { stars } ... on Tag { name description } } }`:          "name description",
		`{ project(key: "a") { tags { name relatedTags { description } } } }`:                             "name related_tags description",
		`query ($yes: Boolean = false) { project(key: "a") { name stars @include(if: $yes) } }`:           "name",
		`{ project(key: "a") { versionInfo { changedFields } } }`:                                         "",
	} {
		p.do(p.fast, query, "")
		if got := strings.Join(p.engine.fields, " "); got != want || p.engine.fields == nil {
			t.Errorf("%s reads %q, want %q", query, p.engine.fields, want)
		}
	}
}
