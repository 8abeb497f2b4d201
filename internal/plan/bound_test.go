package plan_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/internal/plan"
	"github.com/asof/asof/storage/driver"
)

// Answers within the limit are whole, those beyond are longer than it by no more
// than what closes them, whatever is taken away again where a non-null field has
// no value. That goes for the generated executor, too.
func TestMaxAnswer(t *testing.T) {
	p := newPair(t, catalogue()...)
	for _, query := range []string{
		`{ project(key: "a") { id name tags { id name description } versions { nodes { id name versionInfo { changedFields } } } } }`,
		`{ project(key: "a") { description websiteUrl tags { id name } currentRelease { tag publishedAt } } other: project(key: "c") { key description name } }`,
		`{ tag(key: "x") { key } projects { nodes { key name description } } }`,
		`{ nodes(ids: ["Tag:x", "Project:c", "Project:a"]) { id ... on Tag { name } ... on Project { description name } ... on Document { key } } }`,
		`{ tag(key: "x", version: 1) { externalLinks { title url } } bad: tag(key: "bad") { delegateTo { url } } tags { nodes { key } } project(key: "a") { ...a name ...b } }
			fragment a on Project { key } fragment b on Document { key }`,
	} {
		want := p.do(p.slow, query, "")
		data, _, _ := strings.Cut(want, "\n")
		for n := 1; n < len(data)+10; n++ {
			for name, schema := range map[string]graphql.ExecutableSchema{
				"plan":   p.plans(func(c *plan.Config) { c.MaxAnswer = n }),
				"gqlgen": httpapi.BoundAnswers(resolvers.NewSchema(p.store), httpapi.Limits{Answer: n}),
			} {
				got := p.do(p.executor(schema), query, "")
				cut, _, _ := strings.Cut(got, "\n")
				if len(data) <= n && got != want || len(data) > n && (len(cut) <= n || len(cut) > n+200) {
					t.Errorf("%s: %s, at most %d bytes:\n got %s\nwant %s", name, query, n, got, want)
				}
			}
		}
	}
}

// allocated is how many bytes fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// One document under many aliases takes no more memory than an answer may, and
// the size of one answer is not taken for the next at once.
func TestMemoryOfAnswers(t *testing.T) {
	p := newPair(t, version{"tags", "big", 10, `{"name":"n","description":"` + strings.Repeat("d", 100_000) + `"}`})
	var query strings.Builder
	query.WriteString(`query ($k: ID!) {`)
	for i := range 20 {
		fmt.Fprintf(&query, " a%d: tag(key: $k) { ...many }", i)
	}
	query.WriteString(` } fragment many on Tag {`)
	for i := range 50 {
		fmt.Fprintf(&query, " b%d: description", i)
	}
	query.WriteString(` }`) // 100 MB
	bounded := p.executor(p.plans(func(c *plan.Config) { c.MaxAnswer = 1 << 20 }))
	if n := allocated(func() { p.do(bounded, query.String(), `{"k":"big"}`) }); n > 20<<20 {
		t.Errorf("%d MB for an answer of at most one", n>>20)
	}
	p.do(p.fast, query.String(), `{"k":"big"}`)
	if n := allocated(func() { p.do(p.fast, query.String(), `{"k":"nobody"}`) }); n > 4<<20 {
		t.Errorf("%d MB for a short answer", n>>20)
	}
}

// What is looked at in each of many references takes memory before any of it is
// written: references that are empty, or cannot be read, and lists of versions count
// as those do that lead somewhere. A root field that needs too many is refused.
func TestReferencesAreBounded(t *testing.T) {
	list := func(tag string) string {
		return `{"name":"n","description":"d","tags":[` + strings.Repeat(`,"`+tag+`"`, 20_000)[1:] + `]}`
	}
	p := newPair(t, version{"tags", "none", 10, `{"name":"n","description":"d"}`}, version{"tags", "wrong", 10, `{"name":"n","description":"d","related_tags":7}`},
		version{"software", "none", 20, list("none")}, version{"software", "wrong", 20, list("wrong")})
	for _, c := range []struct{ key, field string }{{"none", "relatedTags { key }"}, {"wrong", "relatedTags { key }"}, {"none", "versions(first: -1) { totalCount }"}} {
		var fields strings.Builder
		for i := range 60 {
			fmt.Fprintf(&fields, " f%d: %s", i, c.field)
		}
		got := p.do(p.fast, fmt.Sprintf(`{ few: project(key: "none") { tags { key } } many: nodes(ids: ["Project:%s"]) { id ... on Project { tags {%s } } } last: project(key: "none") { name } }`,
			c.key, fields.String()), "")
		if data, errs, _ := strings.Cut(got, "\n"); !strings.HasPrefix(data, "null") || strings.Count(errs, `"code"`) != 1 || !strings.Contains(errs, `["many"]`) || !strings.Contains(errs, "QUERY_TOO_COMPLEX") {
			t.Errorf("%v: %.200s, errors %.200s", c, data, errs)
		}
	}
}

// What is much too long for an answer is not read and written to its end.
func TestLongAnswersEnd(t *testing.T) {
	p := newPair(t, version{"tags", "links", 10, `{"name":"n","description":"d","redirect":[` + strings.Repeat(",{}", 60_000)[1:] + `]}`})
	short := p.executor(p.plans(func(c *plan.Config) { c.MaxAnswer = 1 << 10 }))
	p.engine.gets = 0
	got := p.do(short, `{tag(key: "links") { a: redirect { title } b: redirect { title url } } other: tag(key: "links") { name }}`, "")
	if p.engine.gets != 1 || len(got) > 2<<10 {
		t.Errorf("%d reads: %.300s", p.engine.gets, got)
	}
}

// An answer that there is no memory for has that error.
func TestAnswersTakeMemory(t *testing.T) {
	p := newPair(t, version{"tags", "big", 10, `{"name":"n","description":"` + strings.Repeat("d", 100_000) + `"}`})
	taken := 0
	schema := p.plans(func(c *plan.Config) {
		c.Memory = func(_ context.Context, bytes int) error {
			if taken += 2 * bytes; taken > 500_000 {
				return errors.New("no memory")
			}
			return nil
		}
	})
	const one, many = `{tag(key: "big") {a: description b: description}}`, `{tag(key: "big") {a: description b: description c: description d: description e: description}}`
	if got := p.do(p.executor(schema), one, ""); len(got) < 200_000 || taken < 400_000 {
		t.Errorf("%d bytes were taken: %.300s", taken, got)
	}
	taken = 0
	if got := p.do(p.executor(schema), many, ""); len(got) > 400_000 || !strings.Contains(got[len(got)-1000:], "errors") && !strings.Contains(got[len(got)-1000:], "INTERNAL") {
		t.Errorf("%d bytes were taken: %s", taken, got[len(got)-300:])
	}
}

// What fails after as many errors as an answer lists has no place; that references have been looked at
// takes memory, whether or not they lead somewhere.
func TestWhatFailsIsBounded(t *testing.T) {
	p := newPair(t, version{"tags", "a", 10, `{"name":"n","description":"d","related_tags":["a"]}`},
		version{"tags", "many", 20, `{"name":"n","description":"d","related_tags":[` + strings.Repeat(`,"a"`, 1000)[1:] + `]}`},
		version{"tags", "a", 30, `{"name":"n","description":"later"}`})
	const failing = `{tag(key: "many") {relatedTags {key relatedTags(asOf: "2999-01-01T00:00:00Z") {key}}}}`
	few := p.do(p.executor(p.plans(func(c *plan.Config) { c.MaxErrors = 3 })), failing, "")
	if n := strings.Count(few, `"path"`); n != 3 || strings.Count(few, "is in the future") != 1000 {
		t.Errorf("%d errors have places: %.500s", n, few)
	}
	if err := p.engine.Rewrite(t.Context(), "tags", "a", []driver.Version{{Number: 1, Op: driver.OpPruned, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	pruned := p.do(p.executor(p.plans(func(c *plan.Config) { c.MaxErrors = 3 })), `{tag(key: "many") {relatedTags(asOf: "1970-01-01T00:00:00.000012Z") {key}}}`, "")
	if n := strings.Count(pruned, `"path"`); n != 3 || strings.Count(pruned, "HISTORY_PRUNED") != 4 {
		t.Errorf("%d errors have places: %.500s", n, pruned)
	}
	taken := 0
	got := p.do(p.executor(p.plans(func(c *plan.Config) {
		c.Memory = func(_ context.Context, bytes int) error {
			if taken += bytes; taken > 50_000 {
				return errors.New("no memory")
			}
			return nil
		}
	})), failing, "")
	if strings.Contains(got, "is in the future") || strings.Contains(got, `"key":"a"`) || taken < 50_000 {
		t.Errorf("%d bytes were taken: %.500s", taken, got)
	}
}

// Plans that are kept do not keep the variables of the request that they were
// compiled for.
func TestPlansForgetVariables(t *testing.T) {
	p := newPair(t, catalogue()...)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what is in pools is there for one more
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const n = 50
	for i := range n {
		p.do(p.fast, fmt.Sprintf(`query Q%d($k: ID!, $c: Boolean!) { project(key: $k) { id @include(if: $c) key } projects(first: 1) { totalCount } nodes(ids: [$k]) { id } node(id: $k) { id } }`, i),
			`{"c":true,"k":"`+strings.Repeat("k", 1<<20)+`"}`)
	}
	if kept := heap() - before; kept > n<<20/4 {
		t.Errorf("%d MB are kept of %d MB of variables", kept>>20, n)
	}
	runtime.KeepAlive(p)
}
