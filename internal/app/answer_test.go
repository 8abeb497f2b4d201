package app

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// An answer that will be refused for its length takes little more memory than the
// longest that will not, whatever executes the operation: one document under many
// aliases is long, and was read once.
func TestMemoryOfRefusedAnswers(t *testing.T) {
	var query strings.Builder
	query.WriteString(`{ projects(first: 6) { nodes {`)
	for i := range 100 {
		fmt.Fprintf(&query, " a%d: description", i)
	}
	query.WriteString(` } } }`) // 54 MB
	// What reads versions and explains them is never planned.
	const unplanned = `{ tags(first: 1) { nodes { blame { path } } } projects(first: 6) { nodes {`
	for name, c := range map[string]struct {
		executor, query string
		most            uint64 // MB
	}{
		"plan":      {"plan", query.String(), 12},   // a buffer that grows to 2 MB
		"gqlgen":    {"gqlgen", query.String(), 36}, // 16 MB of texts, and as much until the collector runs
		"unplanned": {"plan", strings.Replace(query.String(), `{ projects(first: 6) { nodes {`, unplanned, 1), 36},
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, "--executor="+c.executor, "--max-answer=2MB")
			for i := range 6 {
				created := p.query(t, fmt.Sprintf(`mutation { createProject(input: {key: "big%d", data: {name: "Big", description: "%s"}}) { __typename } }`, i, strings.Repeat("d", 90_000)))
				if created.status != 200 || len(created.codes(t)) > 0 || !strings.Contains(created.body, "Success") {
					t.Fatalf("status %d, %s", created.status, created.body)
				}
			}
			p.query(t, `{ projects { nodes { key } } }`) // what is made once
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := p.query(t, c.query)
			runtime.ReadMemStats(&after)
			if codes := got.codes(t); len(codes) != 1 || codes[0] != "QUERY_TOO_COMPLEX" || !strings.Contains(got.body, "longer than 2097152 bytes") {
				t.Errorf("%.500s", got.body)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > c.most<<20 {
				t.Errorf("%d MB for an answer of at most two", n>>20)
			}
		})
	}
}
