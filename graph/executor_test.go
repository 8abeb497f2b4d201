package graph_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// answer runs a query over documents that a page engine returns.
func answer(t *testing.T, e *pageEngine, query string) (data any, errs []string) {
	t.Helper()
	store, err := storage.New(e, model.Types)
	if err != nil {
		t.Fatal(err)
	}
	exec := executor.New(resolvers.NewSchema(store))
	ctx, err := store.Begin(graphql.StartOperationTrace(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	oc, list := exec.CreateOperationContext(resolvers.Begin(ctx, store), &graphql.RawParams{Query: query})
	if list != nil {
		t.Fatal(list)
	}
	next, ctx := exec.DispatchOperation(resolvers.Begin(ctx, store), oc)
	resp := next(ctx)
	for _, e := range resp.Errors {
		errs = append(errs, e.Path.String())
	}
	if err := json.Unmarshal(resp.Data, &data); err != nil {
		t.Fatalf("%v: %s", err, resp.Data)
	}
	return data, errs
}

func projectVersion(key, data string) *driver.Version {
	return &driver.Version{
		Collection: "software", Key: key, Number: 2, RecordedAt: 1, SupersededAt: driver.Forever,
		Op: driver.OpUpdate, Author: "someone", Data: []byte(data),
	}
}

func parsed(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The executor is generated and then tuned: what it answers has to be what
// gqlgen's own would.
func TestExecutor(t *testing.T) {
	const good = `{"name":"A \"b\" é","description":"d","tags":["x"],"stargazers_count":7,"archived":null,` +
		`"current_release":{"tag":"v1"},"commit_history":{"2024-01":3}}`
	tests := []struct {
		name, query string
		docs        []string
		want        string
		errs        []string
	}{
		{
			name:  "scalars, aliases, lists, nested objects, type names",
			query: `{ projects { __typename nodes { __typename n: name again: name stars archived websiteUrl tagKeys licenseKeys currentRelease { tag publishedAt } commitHistory } } }`,
			docs:  []string{good},
			want: `{"projects":{"__typename":"ProjectConnection","nodes":[{"__typename":"Project","n":"A \"b\" é","again":"A \"b\" é","stars":7,
				"archived":null,"websiteUrl":null,"tagKeys":["x"],"licenseKeys":[],"currentRelease":{"tag":"v1","publishedAt":null},
				"commitHistory":{"2024-01":3}}]}}`,
		},
		{
			name:  "fragments on interfaces",
			query: `{ projects { nodes { ...d ... on Document { key version } ... on Project { key name } ... on Node { id } } } } fragment d on Document { id versionInfo { number author { id } operation } }`,
			docs:  []string{good},
			want: `{"projects":{"nodes":[{"id":"Project:p0","versionInfo":{"number":2,"author":{"id":"someone"},"operation":"UPDATE"},
				"key":"p0","version":2,"name":"A \"b\" é"}]}}`,
		},
		{
			name:  "a nullable field that does not fit is null",
			query: `{ projects { nodes { name stars } } }`,
			docs:  []string{good, `{"name":"B","description":"d","stargazers_count":"many"}`},
			want:  `{"projects":{"nodes":[{"name":"A \"b\" é","stars":7},{"name":"B","stars":null}]}}`,
			errs:  []string{"projects.nodes[1].stars"},
		},
		{
			name:  "a missing non-null field makes null what holds it",
			query: `{ projects { edges { node { name } } } }`,
			docs:  []string{good, `{"description":"d"}`},
			want:  `null`,
			errs:  []string{"projects.edges[1].node.name"},
		},
		{
			name:  "an alias in the path",
			query: `{ p: projects { nodes { s: stars } } }`,
			docs:  []string{`{"name":"B","description":"d","stargazers_count":1.5}`},
			want:  `{"p":{"nodes":[{"s":null}]}}`,
			errs:  []string{"p.nodes[0].s"},
		},
		{
			name:  "no documents",
			query: `{ projects { nodes { name } edges { cursor } pageInfo { hasNextPage endCursor } } }`,
			want:  `{"projects":{"nodes":[],"edges":[],"pageInfo":{"hasNextPage":false,"endCursor":null}}}`,
		},
		{
			name:  "skip and include",
			query: `{ projects { nodes { name @skip(if: true) stars @include(if: true) } } }`,
			docs:  []string{good},
			want:  `{"projects":{"nodes":[{"stars":7}]}}`,
		},
		{
			name:  "nothing included",
			query: `{ projects { nodes { name @skip(if: true) } } }`,
			docs:  []string{good},
			want:  `{"projects":{"nodes":[{}]}}`,
		},
		{
			name:  "defer is answered at once",
			query: `{ projects { nodes { key ... on Project @defer { name } } } }`,
			docs:  []string{good},
			want:  `{"projects":{"nodes":[{"key":"p0","name":"A \"b\" é"}]}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := newPageEngine()
			e.page = nil
			for i, d := range test.docs {
				e.page = append(e.page, projectVersion("p"+string(rune('0'+i)), d))
			}
			data, errs := answer(t, e, test.query)
			if diff := cmp.Diff(parsed(t, test.want), data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.errs, errs); diff != "" {
				t.Errorf("paths of errors (-want +got):\n%s", diff)
			}
		})
	}
}

// countingEngine counts how often references are read.
type countingEngine struct {
	*pageEngine
	gets int
}

func (e *countingEngine) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	e.gets++
	return e.pageEngine.Get(ctx, collection, refs, fields)
}

// The references of a whole page are read at once, although its documents are
// answered one after another.
func TestReferencesOfAPageAreReadOnce(t *testing.T) {
	e := &countingEngine{pageEngine: newPageEngine()}
	store, err := storage.New(e, model.Types)
	if err != nil {
		t.Fatal(err)
	}
	exec := executor.New(resolvers.NewSchema(store))
	ctx, err := store.Begin(graphql.StartOperationTrace(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	ctx = resolvers.Begin(ctx, store)
	oc, list := exec.CreateOperationContext(ctx, &graphql.RawParams{Query: "{ projects(first: 50) { nodes { tags { name } } } }"})
	if list != nil {
		t.Fatal(list)
	}
	next, ctx := exec.DispatchOperation(ctx, oc)
	if resp := next(ctx); len(resp.Errors) > 0 {
		t.Fatal(resp.Errors)
	}
	if e.gets != 1 {
		t.Errorf("%d reads for the references of one page", e.gets)
	}
}
