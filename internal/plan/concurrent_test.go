package plan_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Plans are shared: many executions of one at the same time, with other
// variables, do not see each other.
func TestExecutionsAtTheSameTime(t *testing.T) {
	p := newPair(t, catalogue()...)
	const query = `query ($k: ID!, $c: Boolean!) { project(key: $k) { key name tags { name relatedTags { key } } stars @include(if: $c) versions { nodes { id } } } nodes(ids: ["Tag:x", "Project:a"]) { id } }`
	variables := make([]string, 0, 12)
	for _, key := range []string{"a", `b\"q`, "c", "d", "e", "nobody"} {
		for _, c := range []bool{true, false} {
			variables = append(variables, fmt.Sprintf(`{"k":"%s","c":%t}`, key, c))
		}
	}
	want := make([]string, len(variables))
	for i, v := range variables {
		want[i] = p.do(p.slow, query, v)
	}
	var all sync.WaitGroup
	for i, v := range variables {
		all.Go(func() {
			for range 20 {
				if got := p.do(p.fast, query, v); got != want[i] {
					t.Errorf("%s:\n got %s\nwant %s", v, got, want[i])
					return
				}
			}
		})
	}
	all.Wait()
}

// More combinations of conditions than are kept, and more fields than a plan
// may have.
func TestManyVariants(t *testing.T) {
	p := newPair(t, catalogue()...)
	var params, fields []string
	for i := range 6 {
		params = append(params, fmt.Sprintf("$c%d: Boolean!", i))
		fields = append(fields, fmt.Sprintf("f%d: name @include(if: $c%d)", i, i))
	}
	query := "query (" + strings.Join(params, ", ") + `) { project(key: "a") { ` + strings.Join(fields, " ") + " } }"
	for n := range 64 {
		var values []string
		for i := range 6 {
			values = append(values, fmt.Sprintf(`"c%d":%t`, i, n>>i&1 == 1))
		}
		p.compare(query, "{"+strings.Join(values, ",")+"}", "")
	}
	deep := "key"
	for range 9 { // three of each, nine levels deep: 29,523 fields
		deep = "a: relatedTags { " + deep + " } b: relatedTags { " + deep + " } c: relatedTags { " + deep + " }"
	}
	p.compare(`{ tag(key: "x") { `+deep+` } }`, "", "the operation has more than 10000 fields")
}

// The memory of answers that were given back is used for others, and only for
// one at a time.
func TestMemoryIsRecycled(t *testing.T) {
	queries := []string{pointQuery, pageQuery, edgesQuery, refsQuery}
	kept, again := newServer(t, true), newServer(t, true)
	recycler, ok := again.schema.(interface{ Recycle(data []byte) })
	if !ok {
		t.Fatal("there is no way to give memory back")
	}
	want := make([]string, len(queries))
	for i, query := range queries {
		want[i] = string(kept.do(t, query))
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				k := (i + n) % len(queries)
				data := again.do(t, queries[k])
				runtime.Gosched()
				if string(data) != want[k] {
					t.Errorf("%s:\n got %s\nwant %s", queries[k], data, want[k])
				}
				recycler.Recycle(data)
			}
		})
	}
	all.Wait()
	const times = 100
	without := allocated(func() {
		for range times {
			kept.do(t, pageQuery)
		}
	})
	with := allocated(func() {
		for range times {
			recycler.Recycle(again.do(t, pageQuery))
		}
	})
	if answers := uint64(times * len(want[1])); with > without-answers/2 {
		t.Errorf("%d bytes with memory that is used again, %d bytes without, for %d bytes of answers", with, without, answers)
	}
}
