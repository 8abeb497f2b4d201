package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// firstTime are operations of several shapes: short and long, with fragments,
// variables and conditions, with answers of one document or of many, and one that
// turns out at its end to be none that is planned.
var firstTime = map[string]string{
	"point":      pointQuery,
	"as of":      asOfQuery,
	"page of 50": pageQuery,
	"edges":      edgesQuery,
	"references": refsQuery,
	"node": `query N { node(id: "Project:project-0") { id ... on Project { ...p currentRelease { tag } } ... on Tag { name } } nodes(ids: ["Project:project-1"]) { ...d } }
		fragment p on Project { name stars tags { ...d name } } fragment d on Document { key version versionInfo { recordedAt author { id } } }`,
	"conditions": `query C($key: ID!, $on: Boolean = true) { project(key: $key) { key name @include(if: $on) tags @skip(if: $on) { key } ... @include(if: $on) { stars updatedAt } } }`,
	"unplanned":  `{ projects(first: 1) { nodes { key } }` + aliases(20) + ` projectHistory(key: "project-0") { current { name } } }`,
	"aliases":    `{` + strings.Repeat(` ...f`, 10) + `} fragment f on Query {` + aliases(20) + `}`,
}

func aliases(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, ` a%d: project(key: "project-%d") { key name description websiteUrl stars updatedAt archived }`, i, i)
	}
	return text.String()
}

// seen executes a query as if it were new, by a comment of its own.
func (s *server) seen(tb testing.TB, query string, n int) { s.do(tb, fmt.Sprintf("%s # %d", query, n)) }

// An operation that is seen for the first time is parsed, validated and, where
// there are plans, compiled.
func BenchmarkFirstTime(b *testing.B) {
	for name, query := range firstTime {
		for _, planned := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/planned=%t", name, planned), func(b *testing.B) {
				s, n := newServer(b, planned), 0
				b.ReportAllocs()
				for b.Loop() {
					n++
					s.seen(b, query, n)
				}
			})
		}
	}
}

// What a plan costs is not paid in vain: also the operation that is never seen
// again costs at most half as much more as without plans. The least of many
// times, taken in turn, is what the work takes on a machine that is not disturbed;
// more are taken as long as that may be why there is a difference.
func TestFirstTime(t *testing.T) {
	const (
		most   = 1.5
		rounds = 20
		times  = 20 // a round
	)
	for name, query := range firstTime {
		t.Run(name, func(t *testing.T) {
			n := 0
			cost := func(s *server) time.Duration {
				n++
				began := time.Now()
				s.seen(t, query, n)
				return time.Since(began)
			}
			slow, fast := newServer(t, false), newServer(t, true)
			least := [2]time.Duration{time.Hour, time.Hour}
			ratio := 0.0
			for range rounds {
				for range times {
					least[0] = min(least[0], cost(slow))
					least[1] = min(least[1], cost(fast))
				}
				if ratio = float64(least[1]) / float64(least[0]); ratio <= most {
					break
				}
			}
			allocations := func(s *server) float64 {
				return testing.AllocsPerRun(10, func() { n++; s.seen(t, query, n) })
			}
			memory := allocations(fast) / allocations(slow)
			t.Logf("%.2f of the time, %.2f of the allocations", ratio, memory)
			if ratio > most || memory > most {
				t.Errorf("with plans, the first time takes %.2f of the time and %.2f of the allocations, want at most %.1f", ratio, memory, most)
			}
		})
	}
}
