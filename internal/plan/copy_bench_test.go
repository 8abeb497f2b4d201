package plan_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/internal/plan"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// How long pages by a copied field take, and how many times as long as the same by a field of the
// documents themselves: of a hundred thousand, which refer to a hundred.
func BenchmarkCopied(b *testing.B) {
	const readings, platforms = 100_000, 100
	engine, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "asof.db"), sqlitestore.Options{Collections: storage.CollectionsOf(model.Types), Sync: sqlitestore.SyncOff})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	version := func(collection, key, data string, at int) driver.Version {
		return driver.Version{Collection: collection, Key: key, RecordedAt: driver.Instant(at + 1), Op: driver.OpImport, Data: []byte(data)}
	}
	var load []driver.Version
	for i := range platforms {
		load = append(load, version("platforms", fmt.Sprintf("p%02d", i), fmt.Sprintf(`{"name":"Platform %02d","description":"What it is."}`, i), 0))
	}
	for i := range readings {
		load = append(load, version("readings", fmt.Sprintf("r%06d", i), fmt.Sprintf(`{"value":%d,"platform":"p%02d"}`, i%platforms, i%platforms), i))
	}
	if _, err := engine.Load(b.Context(), load); err != nil {
		b.Fatal(err)
	}
	store, err := storage.New(engine, model.Types)
	if err != nil {
		b.Fatal(err)
	}
	s := &server{store: store, schema: plan.New(resolvers.NewSchema(store), store, free())}
	s.exec = executor.New(s.schema)
	s.exec.SetQueryCache(lru.New[*ast.QueryDocument](10))
	for _, c := range []struct{ name, own, copied string }{
		{"filter", `(first: 50, where: {value: {eq: 7}}) { nodes { key value } }`, `(first: 50, where: {platformName: {eq: "Platform 07"}}) { nodes { key value } }`},
		{"filter and show", `(first: 50, where: {value: {eq: 7}}) { nodes { key value } }`, `(first: 50, where: {platformName: {eq: "Platform 07"}}) { nodes { key platformName } }`},
		{"several", `(first: 50, where: {value: {lt: 10}}) { nodes { key value } }`, `(first: 50, where: {platformName: {lt: "Platform 10"}}) { nodes { key value } }`},
		{"count", `(where: {value: {lt: 10}}) { totalCount }`, `(where: {platformName: {lt: "Platform 10"}}) { totalCount }`},
		{"ascending", `(first: 50, orderBy: {field: value}) { nodes { key value } }`, `(first: 50, orderBy: {field: platformName}) { nodes { key value } }`},
		{"descending", `(first: 50, orderBy: {field: value, direction: DESC}) { nodes { key value } }`, `(first: 50, orderBy: {field: platformName, direction: DESC}) { nodes { key value } }`},
		{"past", `(asOf: "1970-01-01T00:00:00.09Z", first: 50, where: {value: {eq: 7}}) { nodes { key value } }`, `(asOf: "1970-01-01T00:00:00.09Z", first: 50, where: {platformName: {eq: "Platform 07"}}) { nodes { key value } }`},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range 20 { // what is read is in memory then
				s.do(b, "{readings"+c.own+"}")
				s.do(b, "{readings"+c.copied+"}")
			}
			took := [2]time.Duration{}
			for b.Loop() {
				for i, list := range []string{c.own, c.copied} {
					start := time.Now()
					s.do(b, "{readings"+list+"}")
					took[i] += time.Since(start)
				}
			}
			b.ReportMetric(float64(took[0].Microseconds())/float64(b.N), "own-µs")
			b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "copied-µs")
			b.ReportMetric(float64(took[1])/float64(took[0]), "times")
		})
	}
}
