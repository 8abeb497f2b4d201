package graph_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/internal/load/constant"
	"github.com/asof/asof/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// pageEngine answers every query with the same documents at once, so that what
// is measured is the executor.
type pageEngine struct {
	driver.Engine
	page []*driver.Version
	tags map[string]*driver.Version
}

func (e *pageEngine) Now(context.Context) (driver.Instant, error) { return 1_000, nil }

func (e *pageEngine) Query(context.Context, *driver.Query) ([]*driver.Version, error) {
	return e.page, nil
}

func (e *pageEngine) Get(_ context.Context, _ string, refs []driver.Ref, _ []string) ([]*driver.Version, error) {
	out := make([]*driver.Version, len(refs))
	for i, r := range refs {
		out[i] = e.tags[r.Key]
	}
	return out, nil
}

func newPageEngine() *pageEngine {
	e := &pageEngine{tags: map[string]*driver.Version{}}
	version := func(collection, key, data string) *driver.Version {
		return &driver.Version{
			Collection: collection, Key: key, Number: 54, RecordedAt: 1, SupersededAt: driver.Forever,
			Op: driver.OpUpdate, Author: "someone", Data: []byte(data),
		}
	}
	for i := range 10 {
		key := fmt.Sprintf("tag-%d", i)
		e.tags[key] = version("tags", key, fmt.Sprintf(`{"name":"Tag %d","description":"A topic that projects belong to."}`, i))
	}
	for i := range 50 {
		e.page = append(e.page, version("software", fmt.Sprintf("project-%d", i), fmt.Sprintf(
			`{"name":"Project %d","description":"Minimalist JSON storage service with synchronisation and sharing abilities.",`+
				`"website_url":"https://project-%d.example.org/","source_code_url":"https://code.example.org/project-%d",`+
				`"licenses":["MIT"],"platforms":["Go"],"tags":["tag-%d","tag-%d"],"stargazers_count":%d,"archived":false,"updated_at":"2025-08-05"}`,
			i, i, i, i%10, (i+3)%10, 1000+i)))
	}
	return e
}

func benchmarkQuery(b *testing.B, exec *executor.Executor, begin func(context.Context) context.Context, query string) {
	b.Helper()
	exec.SetQueryCache(lru.New[*ast.QueryDocument](10))
	var out bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		ctx := graphql.StartOperationTrace(b.Context())
		oc, errs := exec.CreateOperationContext(ctx, &graphql.RawParams{Query: query})
		if errs != nil {
			b.Fatal(errs)
		}
		next, ctx := exec.DispatchOperation(begin(ctx), oc)
		resp := next(ctx)
		if len(resp.Errors) > 0 {
			b.Fatal(resp.Errors)
		}
		out.Reset()
		out.Write(resp.Data)
	}
	b.SetBytes(int64(out.Len()))
}

const pageFields = "{ key name description websiteUrl stars archived }"

// What the executor costs over documents as they are stored, against one over
// structs that are in memory already ("constant").
func BenchmarkPageOf50(b *testing.B) {
	b.Run("constant", func(b *testing.B) {
		exec := executor.New(constant.NewExecutableSchema(constant.Config{Resolvers: constant.NewResolver()}))
		benchmarkQuery(b, exec, func(ctx context.Context) context.Context { return ctx },
			"{ projects(first: 50) { nodes "+pageFields+" } }")
	})
	store, err := storage.New(newPageEngine(), model.Types)
	if err != nil {
		b.Fatal(err)
	}
	exec := executor.New(resolvers.NewSchema(store))
	begin := func(ctx context.Context) context.Context {
		ctx, err := store.Begin(ctx)
		if err != nil {
			b.Fatal(err)
		}
		return resolvers.Begin(ctx, store)
	}
	b.Run("stored", func(b *testing.B) {
		benchmarkQuery(b, exec, begin, "{ projects(first: 50) { nodes "+pageFields+" } }")
	})
	b.Run("stored with tags", func(b *testing.B) {
		benchmarkQuery(b, exec, begin, "{ projects(first: 50) { nodes { key name description websiteUrl stars archived tags { name } } } }")
	})
}
