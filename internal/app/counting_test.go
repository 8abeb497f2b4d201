package app

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

// An operation that reads too much is stopped while it reads; the next one
// begins at nothing.
func TestReadLimit(t *testing.T) {
	p := serve(t, "--demo", "--max-read=20KB")
	for _, document := range []string{
		`{changelog(first: 1) {totalCount}}`,
		`{projects(first: 500) {nodes {name}}}`,
		`{projects(first: 9) {nodes {blame {path} changelog {totalCount}}}}`,
	} {
		t.Run(document, func(t *testing.T) {
			got := p.query(t, document)
			codes := got.codes(t)
			if len(codes) == 0 || codes[0] != "QUERY_TOO_COMPLEX" || !strings.Contains(got.body, "more than 20480 bytes") || !strings.Contains(got.body, "ask for fewer documents") {
				t.Error(got.body)
			}
		})
	}
	const few = `{projects(first: 2) {nodes {name}}}`
	for range 20 {
		if got := p.query(t, few); len(got.codes(t)) != 0 {
			t.Fatalf("a query within the limit: %s", got.body)
		}
	}
	stored := regexp.MustCompile(`(?m)^asof_store_versions (\d+)$`).FindStringSubmatch(p.do(t, "GET", "/metrics", "").body)
	p.stop()
	counted := regexp.MustCompile(`documentsRead=(\d+) bytesRead=(\d+)`).FindStringSubmatch(p.stderr.String())
	if stored == nil || counted == nil {
		t.Fatalf("stored %v, counted %v:\n%s", stored, counted, p.stderr)
	}
	all, err := strconv.Atoi(stored[1])
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(counted[1]); err != nil || n == 0 || n > all/2 {
		t.Errorf("the changelog was stopped after %d of %d versions, %v", n, all, err)
	}
}

// Once an operation has read too much, its other fields read nothing.
func TestNothingIsReadBeyondTheLimit(t *testing.T) {
	p := serve(t, "--demo", "--max-read=20KB", "--max-cost=1000000")
	const field = `changelog(first: 1) {totalCount} `
	p.query(t, "{"+field+"}")
	var many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&many, "a%d: %s", i, field)
	}
	p.query(t, "{"+many.String()+"}")
	p.stop()
	read := regexp.MustCompile(`documentsRead=(\d+)`).FindAllStringSubmatch(p.stderr.String(), -1)
	if len(read) != 2 || read[0][1] == "0" || read[0][1] != read[1][1] {
		t.Errorf("one field and forty read %v documents", read)
	}
}

// A list by a tag is read once for a page and its total.
func TestListsByTagAreReadOnce(t *testing.T) {
	p := serve(t, "--demo")
	var keys []string
	for _, found := range regexp.MustCompile(`"key":"([^"]+)"`).FindAllStringSubmatch(p.query(t, `{tags(first: 9) {nodes {key}}}`).body, -1) {
		keys = append(keys, found[1])
		p.write(t, fmt.Sprintf(`tagTagVersion(input: {key: %q, version: 1, name: "t"}) {__typename}`, found[1]))
	}
	for _, total := range []string{"", "totalCount"} {
		if got := p.query(t, `{tags(tag: "t", first: 2) {nodes {key} `+total+`}}`).body; strings.Contains(got, fmt.Sprint(`"totalCount":`, len(keys))) != (total != "") {
			t.Error(got)
		}
	}
	p.stop()
	read := regexp.MustCompile(`documentsRead=(\d+)`).FindAllStringSubmatch(p.stderr.String(), -1)
	if n := len(read); n < 2 || read[n-1][1] != read[n-2][1] {
		t.Errorf("a page and its total read %v documents", read)
	}
}

// The messages of versions count, too.
func TestMessagesAreCounted(t *testing.T) {
	p := serve(t, "--demo", "--max-read=20KB")
	for _, key := range []string{"m", "n"} {
		if got := p.query(t, fmt.Sprintf(`mutation {createTag(input: {key: %q, data: {name: "n", description: ""}, message: %q}) {__typename}}`, key, strings.Repeat("x", 15<<10))); len(got.codes(t)) != 0 {
			t.Fatal(got.body)
		}
	}
	const one = `m: tag(key: "m") {name}`
	for document, refused := range map[string]bool{"{" + one + "}": false, "{" + one + ` n: tag(key: "n") {name}}`: true} {
		if got := p.query(t, document).codes(t); slices.Contains(got, "QUERY_TOO_COMPLEX") != refused {
			t.Errorf("%s: %v", document, got)
		}
	}
}

// What a document has beyond 32 KB counts twice.
func TestLargeDocumentsCountTwice(t *testing.T) {
	p := serve(t, "--demo", "--max-read=200KB", "--max-query=1MB")
	for i, c := range []struct {
		bytes, times int
		refused      bool
	}{{30 << 10, 6, false}, {110 << 10, 1, false}, {150 << 10, 1, true}} {
		text := strings.Repeat("x", c.bytes)
		if got := p.query(t, fmt.Sprintf(`mutation {createTag(input: {key: "large%d", data: {name: "n", description: %q}}) {__typename}}`, i, text)); len(got.codes(t)) != 0 {
			t.Fatal(got.body)
		}
		var fields strings.Builder
		for n := range c.times {
			fmt.Fprintf(&fields, `a%d: tag(key: "large%d") {description} `, n, i)
		}
		got := p.query(t, "{"+fields.String()+"}")
		if refused := slices.Contains(got.codes(t), "QUERY_TOO_COMPLEX"); refused != c.refused {
			t.Errorf("%d bytes %d times: %.200s", c.bytes, c.times, got.body)
		}
	}
}

// getOnly answers Get with versions that bear the names they were asked by.
type getOnly struct {
	driver.Engine
	data  []byte // of each
	sizes []int  // of the calls
}

func (g *getOnly) Get(_ context.Context, _ string, refs []driver.Ref, _ []string) ([]*driver.Version, error) {
	g.sizes = append(g.sizes, len(refs))
	versions := make([]*driver.Version, len(refs))
	for i, ref := range refs {
		if ref.Key != "" {
			versions[i] = &driver.Version{Key: ref.Key, Data: g.data}
		}
	}
	return versions, nil
}

// Many references are read in parts, so that the limit is looked at between
// them, and come back as if they were not.
func TestManyReferences(t *testing.T) {
	for name, test := range map[string]struct {
		size, refs int
		want       []int
	}{
		"small ones": {0, getFirst + 2*getTogether + 1, []int{getFirst, getTogether, getTogether, 1}},
		"large ones": {getBytes / 2, getFirst + 6, []int{getFirst, 2, 2, 2}},
		"huge ones":  {2 * getBytes, getFirst + 2, []int{getFirst, 1, 1}},
		"few":        {2 * getBytes, getFirst, []int{getFirst}},
	} {
		t.Run(name, func(t *testing.T) {
			engine := &getOnly{data: make([]byte, test.size)}
			refs := make([]driver.Ref, test.refs)
			for i := range refs {
				if test.size > 0 || i%3 > 0 {
					refs[i].Key = fmt.Sprint("key", i)
				}
			}
			versions, err := counted(engine).Get(t.Context(), "c", refs, nil)
			if err != nil || len(versions) != len(refs) {
				t.Fatalf("%d versions, %v", len(versions), err)
			}
			for i, v := range versions {
				if v == nil != (refs[i].Key == "") || v != nil && v.Key != refs[i].Key {
					t.Errorf("version %d is %v", i, v)
				}
			}
			if d := cmp.Diff(test.want, engine.sizes); d != "" {
				t.Error(d)
			}
		})
	}
}

// remembering is an engine that remembers one version.
type remembering struct {
	driver.Engine
	known *driver.Version
}

func (r remembering) Remembered(context.Context, string, string, int64) (*driver.Version, error) {
	return r.known, nil
}

// What a write is based on is counted also where the engine remembers it.
func TestRememberedVersionsAreCounted(t *testing.T) {
	for _, engine := range []driver.Engine{remembering{known: &driver.Version{Key: "a"}}, remembering{}, &getOnly{}} {
		r, _ := driver.As[driver.Rememberer](counted(engine))
		if _, counts := r.(counting); !counts {
			t.Fatalf("%T is asked, and what it returns is not counted", r)
		}
		want := (*driver.Version)(nil)
		if inner, ok := engine.(remembering); ok {
			want = inner.known
		}
		if v, err := r.Remembered(t.Context(), "c", "a", 1); v != want || err != nil {
			t.Errorf("%v, %v", v, err)
		}
	}
}

// Versions of which only numbers and times are shown are read without documents.
func TestVersionsWithoutDocumentsAreCheap(t *testing.T) {
	p := serve(t, "--demo")
	for _, fields := range []string{"version versionInfo {author {id} recordedAt}", "name"} {
		got := p.query(t, `{projects(first: 20) {nodes {versions(first: 50) {nodes {`+fields+`}}}}}`)
		if len(got.codes(t)) != 0 {
			t.Fatal(got.body)
		}
	}
	p.stop()
	counted := regexp.MustCompile(`documentsRead=(\d+) bytesRead=(\d+)`).FindAllStringSubmatch(p.stderr.String(), -1)
	if len(counted) != 2 || counted[0][1] != counted[1][1] {
		t.Fatalf("counted %q:\n%s", counted, p.stderr)
	}
	bare, err := strconv.Atoi(counted[0][2])
	if err != nil {
		t.Fatal(err)
	}
	whole, err := strconv.Atoi(counted[1][2])
	if err != nil || bare > whole/5 {
		t.Errorf("%d bytes without documents, %d with their names, %v", bare, whole, err)
	}
}

// What one operation has in memory is bounded, whatever asks for it: references to many documents
// are refused before all of them are there, and fewer are answered.
func TestWhatAnOperationKeepsIsBounded(t *testing.T) {
	var lines strings.Builder
	put := func(key string, refs ...string) {
		data, err := json.Marshal(map[string]any{"name": key, "description": "", "related_tags": refs})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, `{"collection":"tags","id":%q,"at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":%s}`+"\n", key, data)
	}
	keys := make([]string, 3000)
	for i := range keys {
		keys[i] = fmt.Sprint("t", i)
		put(keys[i], fmt.Sprint("t", (i+1)%len(keys)))
	}
	put("few", keys[:120]...)
	put("many", keys...)
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")
	if status, _, errs := run(t, lines.String(), "import", "-", store); status != 0 {
		t.Fatal(errs)
	}
	p := serve(t, store, "--max-read=1MB", "--max-answer=512KB") // 630 KB in memory: some 1,000 documents
	const refs = `relatedTags {key relatedTags {key}}`
	for name, document := range map[string]string{
		"a plan":           `{tag(key: %q) {` + refs + `}}`,
		"the executor":     `{tag(key: %q) {` + refs + `} none: tag(key: "t1", tag: "none") {key}}`,
		"several instants": `{tag(key: %q) {a: relatedTags {key} b: relatedTags(asOf: "2026-01-01T00:00:00Z") {key} c: relatedTags(asOf: "2026-01-02T00:00:00Z") {key}}}`,
		"deferred":         `{tag(key: %q) {...@defer {` + refs + `}}}`,
		"a conflict":       `mutation {updateTag(input: {key: %q, expectedVersion: 9, patch: {name: "n"}}) {...on TagConflict {current {` + refs + `}}}}`,
		"an event":         `subscription {tagChanged(key: %q, since: {asOf: "NOW"}) {document {` + refs + `}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			for key, refused := range map[string]bool{"few": false, "many": true} {
				asked := fmt.Sprintf(document, key)
				var got string
				if name == "an event" {
					now := regexp.MustCompile(`"asOf":"([^"]+)"`).FindStringSubmatch(p.query(t, `{tag(key: "few") {key}}`).body)
					p.write(t, fmt.Sprintf(`updateTag(input: {key: %q, expectedVersion: 1, patch: {name: "another"}}) {__typename}`, key))
					got, _ = p.overEvents(t, strings.Replace(asked, "NOW", now[1], 1), nil).next()
				} else {
					got = p.query(t, asked, "Accept", "multipart/mixed, application/json").body
				}
				if is := strings.Contains(got, "QUERY_TOO_COMPLEX") && strings.Contains(got, "in memory"); is != refused || !refused && strings.Contains(got, `"errors"`) {
					t.Errorf("%s: %.500s", asked, got)
				}
			}
		})
	}
	p.stop()
	for _, found := range regexp.MustCompile(`documentsRead=(\d+)`).FindAllStringSubmatch(p.stderr.String(), -1) {
		if n, err := strconv.Atoi(found[1]); err != nil || n > 1<<20/perVersion+getTogether {
			t.Errorf("%s, %v", found[0], err)
		}
	}
}

// The names of the fields that changed count as what is read: those that the schema does not declare may
// be long, and a merge reads them of each version since the expected one.
func TestNamesOfFieldsCount(t *testing.T) {
	const versions = 300
	var lines strings.Builder
	for key, name := range map[string]string{"short": "n", "long": strings.Repeat("n", 190)} {
		for i := range versions {
			fmt.Fprintf(&lines, `{"collection":"tags","id":%q,"at":"2025-01-01T00:00:%02d.%02dZ","by":"ada","op":"put","data":{"name":"n","description":"","%s%d":1}}`+"\n", key, i/100, i%100, name, i)
		}
	}
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")
	if status, _, errs := run(t, lines.String(), "import", "-", store); status != 0 {
		t.Fatal(errs)
	}
	p := serve(t, store, "--max-read=40KB")
	for key, refused := range map[string]bool{"short": false, "long": true} {
		for _, patch := range []string{`onConflict: MERGE, patch: {name: "m"}`, `patch: {name: "m"}`} {
			got := p.query(t, fmt.Sprintf(`mutation {updateTag(input: {key: %q, expectedVersion: 1, %s}) {...on TagConflict {overlappingPaths}}}`, key, patch)).body
			if strings.Contains(got, "QUERY_TOO_COMPLEX") != refused || strings.Contains(got, `"errors"`) != refused {
				t.Errorf("%s, %s: %.500s", key, patch, got)
			}
		}
	}
}

// Arguments are converted for each element of a list: where they are many, or long, the list is
// refused before any of it is resolved.
func TestArgumentsCountForEachElement(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")
	const line = `{"collection":"tags","id":%q,"at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"n","description":"","related_tags":[%s]}}` + "\n"
	few, many := strings.TrimSuffix(strings.Repeat(`"t",`, 20), ","), strings.TrimSuffix(strings.Repeat(`"t",`, 4_000), ",")
	lines := fmt.Sprintf(line, "t", "") + fmt.Sprintf(line, "few", few) + fmt.Sprintf(line, "many", many)
	if status, _, errs := run(t, lines, "import", "-", store); status != 0 {
		t.Fatal(errs)
	}
	p := serve(t, store)
	names := "[" + strings.Repeat("name ", 40) + "]"
	for name, fields := range map[string]string{
		"values":         `blame(fields: ` + names + `) {path}`,
		"values, deeper": `versions(last: 1) {nodes {blame(fields: ` + names + `) {path}}}`,
		"bytes":          `diff(from: {asOf: "2025-01-01T00:00:00.` + strings.Repeat("0", 2_000) + `Z"}, to: {version: 1}) {jsonPatch}`,
		"errors":         `a: relatedTags(asOf: "x") {key} b: relatedTags(asOf: "x") {key} c: versions(first: 0, fields: []) {nodes {key}} d: changelog(first: 0, fields: [], author: "x") {nodes {path}}`,
	} {
		t.Run(name, func(t *testing.T) {
			for key, refused := range map[string]bool{"few": false, "many": true} {
				for _, document := range []string{
					`{tag(key: %q) {relatedTags {` + fields + `}}}`,
					`{tag(key: %q) {relatedTags {key} ...{relatedTags {` + fields + `}}}}`,
					`mutation {updateTag(input: {key: %q, expectedVersion: 9, patch: {name: "m"}}) {...on TagConflict {current {relatedTags {` + fields + `}}}}}`,
				} {
					got := p.query(t, fmt.Sprintf(document, key)).body
					if is := strings.Contains(got, "fields and elements of lists"); is != refused {
						t.Errorf("%s: %.500s", document, got)
					}
				}
			}
		})
	}
}

// What an answer has of a text is counted as it is written: six bytes for a control character.
func TestTextsCountAsJSON(t *testing.T) {
	p := serve(t, "--max-execution=1m") // the race detector makes it slow
	created := p.query(t, `mutation {createTag(input: {key: "t", data: {name: "n", description: "`+strings.Repeat(`\u0001`, 10_000)+`"}}) {__typename}}`)
	if !strings.Contains(created.body, "Success") {
		t.Fatal(created.body)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, _ := p.overEvents(t, `subscription {tagChanged(key: "t", since: {asOf: "2020-01-01T00:00:00Z"}) {document {`+aliases("description", 400)+`}}}`, nil).next()
	runtime.ReadMemStats(&after)
	if !strings.Contains(got, "QUERY_TOO_COMPLEX") {
		t.Errorf("%.500s", got)
	}
	if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 40 {
		t.Errorf("%d MB for an answer of which 4 MB are put together", n)
	}
}

func aliases(field string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d: %s ", i, field)
	}
	return b.String()
}
