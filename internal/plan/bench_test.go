package plan_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/internal/plan"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// ready is an engine that has every answer in memory, so that what is measured
// is the way from a request to bytes.
type ready struct {
	driver.Engine
	page []*driver.Version
	docs map[string]*driver.Version
}

func (e *ready) Now(context.Context) (driver.Instant, error) { return 1_000, nil }

func (e *ready) Query(context.Context, *driver.Query) ([]*driver.Version, error) { return e.page, nil }

func (e *ready) Get(_ context.Context, collection string, refs []driver.Ref, _ []string) ([]*driver.Version, error) {
	out := make([]*driver.Version, len(refs))
	for i, r := range refs {
		if collection == "software" {
			out[i] = e.page[0]
		} else {
			out[i] = e.docs[r.Key]
		}
	}
	return out, nil
}

func newReady() *ready {
	e := &ready{docs: map[string]*driver.Version{}}
	version := func(collection, key, data string) *driver.Version {
		return &driver.Version{
			Collection: collection, Key: key, Number: 54, RecordedAt: 1, SupersededAt: driver.Forever,
			Op: driver.OpUpdate, Author: "someone", Data: []byte(data), Notes: new(driver.Notes),
		}
	}
	for i := range 10 {
		key := fmt.Sprintf("tag-%d", i)
		e.docs[key] = version("tags", key, fmt.Sprintf(`{"name":"Tag %d","description":"A topic that projects belong to."}`, i))
	}
	e.docs["MIT"] = version("licenses", "MIT", `{"identifier":"MIT","name":"MIT License"}`)
	for i := range 50 {
		e.page = append(e.page, version("software", fmt.Sprintf("project-%d", i), fmt.Sprintf(
			`{"name":"Project %d","description":"Minimalist JSON storage service with synchronisation and sharing abilities.",`+
				`"website_url":"https://project-%d.example.org/","source_code_url":"https://code.example.org/project-%d",`+
				`"licenses":["MIT"],"platforms":["Go"],"tags":["tag-%d","tag-%d"],"stargazers_count":%d,"archived":false,"updated_at":"2025-08-05",`+
				`"current_release":{"tag":"v1.2.3","published_at":"2025-08-01"}}`,
			i, i, i, i%10, (i+3)%10, 1000+i)))
	}
	return e
}

const (
	pointQuery = `query Point($key: ID!) { project(key: $key) { key name description websiteUrl stars } }`
	asOfQuery  = `query Point($key: ID!) { project(key: $key, asOf: "1970-01-01T00:00:00.0005Z") { id name description websiteUrl stars } }`
	pageQuery  = `query Page { projects(where: {stars: {gte: 1000}}, orderBy: [{field: stars, direction: DESC}], first: 50) { nodes { key name description websiteUrl stars updatedAt } } }`
	edgesQuery = `query Page { projects(first: 50) { edges { cursor node { id name currentRelease { tag publishedAt } versionInfo { number recordedAt } } } pageInfo { hasNextPage endCursor } } }`
	refsQuery  = `query Page { projects(where: {stars: {gte: 1000}}, orderBy: [{field: stars, direction: DESC}], first: 50) { nodes { key name description websiteUrl stars updatedAt tags { name } licenses { name } } } }`
)

// server executes requests, from parameters to data.
type server struct {
	store  *storage.Store
	schema graphql.ExecutableSchema
	exec   *executor.Executor
}

func newServer(tb testing.TB, planned bool) *server {
	tb.Helper()
	store, err := storage.New(newReady(), model.Types)
	if err != nil {
		tb.Fatal(err)
	}
	schema := resolvers.NewSchema(store)
	if planned {
		schema = plan.New(schema, store, free())
	}
	exec := executor.New(schema)
	exec.SetQueryCache(lru.New[*ast.QueryDocument](10))
	return &server{store, schema, exec}
}

// do executes a request and returns its data.
func (s *server) do(tb testing.TB, query string) []byte {
	ctx, err := s.store.Begin(graphql.StartOperationTrace(tb.Context()))
	if err != nil {
		tb.Fatal(err)
	}
	oc, errs := s.exec.CreateOperationContext(ctx, &graphql.RawParams{Query: query, Variables: map[string]any{"key": "project-0"}})
	if errs != nil {
		tb.Fatal(errs)
	}
	next, ctx := s.exec.DispatchOperation(dataloader.Begin(ctx, s.store), oc)
	resp := next(ctx)
	if len(resp.Errors) > 0 {
		tb.Fatal(resp.Errors)
	}
	return resp.Data
}

func BenchmarkAnswer(b *testing.B) {
	for _, c := range []struct{ name, query string }{
		{"point", pointQuery}, {"as of", asOfQuery}, {"page of 50", pageQuery}, {"edges", edgesQuery}, {"references", refsQuery},
	} {
		for _, planned := range []bool{false, true} {
			name := c.name + "/gqlgen"
			if planned {
				name = c.name + "/plan"
			}
			b.Run(name, func(b *testing.B) {
				s := newServer(b, planned)
				b.ReportAllocs()
				for b.Loop() {
					b.SetBytes(int64(len(s.do(b, c.query))))
				}
			})
		}
	}
}

// Allocations are what a busy machine cannot blur.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		name, query string
		most        float64
	}{
		{"point", pointQuery, 39}, {"as of", asOfQuery, 39}, {"page of 50", pageQuery, 79},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, true)
			s.do(t, c.query)
			if got := testing.AllocsPerRun(100, func() { s.do(t, c.query) }); got > c.most {
				t.Errorf("%v allocations, want at most %v", got, c.most)
			}
		})
	}
}
