package plan_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

// How long pages by a copied field take, in the median, and how many times as long as the same by a field of the
// documents themselves: of a hundred thousand, which refer to a hundred others or more.
func BenchmarkCopied(b *testing.B) {
	for _, sources := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(sources), func(b *testing.B) { benchmarkCopied(b, sources) })
	}
}

func benchmarkCopied(b *testing.B, sources int) {
	const readings = 100_000
	engine, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "asof.db"), sqlitestore.Options{Collections: storage.CollectionsOf(model.Types), Sync: sqlitestore.SyncOff})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	version := func(collection, key, data string, at int) driver.Version {
		return driver.Version{Collection: collection, Key: key, RecordedAt: driver.Instant(at + 1), Op: driver.OpImport, Data: []byte(data)}
	}
	var load []driver.Version
	for i := range sources {
		load = append(load, version("platforms", fmt.Sprintf("p%05d", i), fmt.Sprintf(`{"name":"Platform %05d","description":"What it is."}`, i), 0))
	}
	for i := range readings {
		load = append(load, version("readings", fmt.Sprintf("r%06d", i), fmt.Sprintf(`{"value":%d,"platform":"p%05d"}`, i%sources, i%sources), i))
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
	s.exec.SetQueryCache(lru.New[*ast.QueryDocument](100))
	const past = `asOf: "1970-01-01T00:00:00.09Z", first: 50, `
	fields := [2]string{"value", "platformName"}
	equal, few := [2]string{`value: {eq: 7}`, `platformName: {eq: "Platform 00007"}`}, [2]string{`value: {lt: 10}`, `platformName: {lt: "Platform 00010"}`}
	for _, c := range []struct {
		name, args string    // in which W is the condition and F the field
		where      [2]string // by the documents' own field, and by the copied one
		show       string
		deep       bool // the page after the tenth
	}{
		{"filter", `first: 50, where: {W}`, equal, `nodes { key value }`, false},
		{"filter and show", `first: 50, where: {W}`, equal, `nodes { key F }`, false},
		{"filter past", past + `where: {W}`, equal, `nodes { key value }`, false},
		{"several", `first: 50, where: {W}`, few, `nodes { key value }`, false},
		{"count", `where: {W}`, few, `totalCount`, false},
		{"ascending", `first: 50, orderBy: {field: F}`, few, `nodes { key value }`, false},
		{"ascending filtered", `first: 50, where: {W}, orderBy: {field: F}`, few, `nodes { key value }`, false},
		{"ascending later", `first: 50, orderBy: {field: F}`, few, `nodes { key value } pageInfo { endCursor }`, true},
		{"ascending past", past + `orderBy: {field: F}`, few, `nodes { key value }`, false},
		{"descending", `first: 50, orderBy: {field: F, direction: DESC}`, few, `nodes { key value }`, false},
		{"descending filtered", `first: 50, where: {W}, orderBy: {field: F, direction: DESC}`, few, `nodes { key value }`, false},
		{"descending later", `first: 50, orderBy: {field: F, direction: DESC}`, few, `nodes { key value } pageInfo { endCursor }`, true},
		{"descending past", past + `orderBy: {field: F, direction: DESC}`, few, `nodes { key value }`, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			var lists [2]string
			for i := range lists {
				names := strings.NewReplacer("W", c.where[i], "F", fields[i])
				list := func(after string) string {
					return "{ readings(" + names.Replace(c.args) + after + ") { " + names.Replace(c.show) + " } }"
				}
				lists[i] = list("")
				for page := 0; c.deep && page < 10; page++ {
					var answer struct {
						Readings struct{ PageInfo struct{ EndCursor string } }
					}
					if err := json.Unmarshal(s.do(b, lists[i]), &answer); err != nil {
						b.Fatal(err)
					}
					lists[i] = list(`, after: "` + answer.Readings.PageInfo.EndCursor + `"`)
				}
				for range 20 { // what is read is in memory then
					s.do(b, lists[i])
				}
			}
			var took [2][]float64 // µs; others may disturb some
			for b.Loop() {
				for i, list := range lists {
					start := time.Now()
					s.do(b, list)
					took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/1000)
				}
			}
			for i := range took {
				slices.Sort(took[i])
			}
			own, copied := took[0][len(took[0])/2], took[1][len(took[1])/2]
			b.ReportMetric(own, "own-µs")
			b.ReportMetric(copied, "copied-µs")
			b.ReportMetric(copied/own, "times")
		})
	}
}
