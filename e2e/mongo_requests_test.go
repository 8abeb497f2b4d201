package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// commandCounter counts what a server is sent for requests: not how connections are
// made and watched, nor, where it is alone, how it tells others that it is there, nor
// whether an erasure is to be finished, which is looked for in the background.
type commandCounter struct {
	mu    sync.Mutex
	more  sync.Cond // something was sent
	fleet bool      // there are several servers, which agree on instants for requests, too
	sent  []string
}

func newCommandCounter() *commandCounter {
	c := new(commandCounter)
	c.more.L = &c.mu
	return c
}

func (c *commandCounter) answer(command mongotest.Command) mongotest.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if command.Hello() || command.Collection() == "asof.meta" && !c.fleet || command.Collection() == "asof_retention" || command.Name == "endSessions" {
		return mongotest.Pass()
	}
	c.sent = append(c.sent, command.Name+" "+command.Collection())
	c.more.Broadcast()
	return mongotest.Pass()
}

// take returns what was sent, when other servers have been told so many times of what
// is in flight.
func (c *commandCounter) take(told int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.fleet && tellings(c.sent) < told {
		c.more.Wait()
	}
	sent := c.sent
	c.sent = nil
	return sent
}

func tellings(sent []string) (n int) {
	for _, command := range sent {
		if command == "findAndModify asof.meta" {
			n++
		}
	}
	return n
}

// requestCatalog writes documents with histories: projects of ten versions with
// references, one whose history is long enough to leave the document, and as many
// again of both as are written to.
func requestCatalog(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "catalog.ndjson")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	out := bufio.NewWriter(file)
	put := func(collection, key, data string) {
		at = at.Add(time.Minute)
		_, _ = fmt.Fprintf(out, `{"collection":%q,"id":%q,"at":%q,"by":"ada","op":"put","data":%s}`+"\n", collection, key, at.Format(time.RFC3339), data)
	}
	for i := range 10 {
		put("tags", fmt.Sprint("tag", i), fmt.Sprintf(`{"name":"Tag %d","description":"Things"}`, i))
		put("licenses", fmt.Sprint("license", i), fmt.Sprintf(`{"identifier":"L-%d","name":"License"}`, i))
	}
	project := func(key string, i, stars int) {
		put("software", key, fmt.Sprintf(
			`{"name":%q,"description":"A program","licenses":["license%d"],"tags":["tag%d","tag%d"],"platforms":[],"stargazers_count":%d}`,
			key, i%10, i%10, (i+3)%10, stars))
	}
	for version := range 10 {
		for i := range 60 {
			project(fmt.Sprintf("project%02d", i), i, 100*version+i)
		}
	}
	for version := range 150 {
		project("long", 1, version)
	}
	for version := range 10 {
		for i := range editable {
			project(fmt.Sprintf("short%02d", i), i, version-100)
		}
	}
	for version := range 80 {
		for i := range editableLong {
			project(fmt.Sprintf("verylong%d", i), i, version-200)
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// How many documents there are to write to, and how often a request is counted where
// there are several servers: what these tell each other meanwhile only adds.
const (
	requestTries = 5
	editable     = 90
	editableLong = requestTries + 1
)

// requestOf is a kind of request.
type requestOf struct {
	name, query string
	want        string // in the answer
	// key is a document for the query alone; before makes it ready.
	key    func() string
	before func(key string)
	// fleet: it takes another server to come about.
	fleet bool
	// told is how often others are told of a commit that is lost: nobody waits for the
	// last time.
	told int
}

// TestRequestsOnMongoDB holds the number of commands that each kind of request
// takes, on one server and where there are several, against a golden file, of which
// docs/mongodb.md has a part.
func TestRequestsOnMongoDB(t *testing.T) {
	counter := newCommandCounter()
	database := mongotest.NewServer(t)
	proxy, store, name := database.Behind(t)
	direct, err := mongotest.WithDatabase(database.URI, name)
	if err != nil {
		t.Fatal(err)
	}
	run(t, program, "import", "--store", store, requestCatalog(t))
	s := startServer(t, program, store, "--prune-rate=0") // whose commands would be counted
	var other *server
	proxy.Set(counter.answer)

	const (
		middle = "2024-01-01T05:20:00Z" // amid the ten versions of the projects
		early  = "2024-01-01T10:40:00Z" // of the long history, in the overflow
		ten    = `key version name stars description`
		page   = `orderBy: [{field: stars, direction: DESC}], first: 50`
		update = `mutation($key: ID!) { updateProject(input: {key: $key, `
	)
	short, long := 0, 0
	fresh := func() string { short++; return fmt.Sprintf("short%02d", short-1) }
	freshLong := func() string { long++; return fmt.Sprintf("verylong%d", long-1) }
	written := func(by *server, query, key string) {
		t.Helper()
		if a := by.ask(t, query, map[string]any{"key": key}); len(a.Errors) > 0 || strings.Contains(fmt.Sprint(a.Data), "Conflict") {
			t.Fatalf("%s: %v, %s", query, a.Errors, a.Data)
		}
	}
	seen := func(key string) {
		t.Helper()
		if a := s.ask(t, `query($key: ID!) { project(key: $key) { version } }`, map[string]any{"key": key}); len(a.Errors) > 0 {
			t.Fatal(a.Errors)
		}
	}
	deleted := func(key string) {
		t.Helper()
		written(s, `mutation($key: ID!) { deleteProject(input: {key: $key, expectedVersion: 10}) { __typename } }`, key)
	}
	superseded := func(key string) {
		t.Helper()
		seen(key)
		written(other, update+`expectedVersion: 10, patch: {stars: 7}}) { __typename } }`, key)
	}
	requests := []requestOf{
		{name: "a document", query: `{ project(key: "project07") { ` + ten + ` } }`, want: `"version":10`},
		{name: "a document as of a recent instant", query: `{ project(key: "project07", asOf: "` + middle + `") { ` + ten + ` } }`, want: `"version":5`},
		{name: "a document by a recent number", query: `{ project(key: "project07", version: 4) { ` + ten + ` } }`, want: `"version":4`},
		{name: "a document as of an instant of long ago", query: `{ project(key: "long", asOf: "` + early + `") { ` + ten + ` } }`, want: `"version":20`},
		{name: "a document by a number of long ago", query: `{ project(key: "long", version: 3) { ` + ten + ` } }`, want: `"version":3`},
		{name: "a document with its tags and licenses", query: `{ project(key: "project07") { ` + ten + ` tags { name } licenses { name } } }`, want: `"Tag 7"`},
		{name: "a page of 50", query: `{ projects(` + page + `) { nodes { ` + ten + ` } pageInfo { hasNextPage } } }`, want: `"hasNextPage":true`},
		{name: "a page of 50 with the total", query: `{ projects(` + page + `) { totalCount nodes { ` + ten + ` } } }`, want: `"totalCount":1`},
		{name: "a page that shows all there is, with the total", query: `{ tags(first: 50) { totalCount nodes { name } } }`, want: `"totalCount":10`},
		{name: "only the total", query: `{ tags { totalCount } }`, want: `"totalCount":10`},
		{name: "a page of 50 with tags and licenses", query: `{ projects(` + page + `) { nodes { ` + ten + ` tags { name } licenses { name } } } }`, want: `"Tag 7"`},
		{name: "a page of 50 as of an instant", query: `{ projects(asOf: "` + middle + `", ` + page + `) { nodes { ` + ten + ` } } }`, want: `"version":5`},
		{
			name:  "a page of 50 as of an instant, with tags and licenses",
			query: `{ projects(asOf: "` + middle + `", ` + page + `) { nodes { ` + ten + ` tags { name } licenses { name } } } }`, want: `"Tag 7"`,
		},
		{
			name:  "a page of 50 as of an instant, with tags, licenses and the total",
			query: `{ projects(asOf: "` + middle + `", ` + page + `) { totalCount nodes { ` + ten + ` tags { name } licenses { name } } } }`, want: `"totalCount":60`,
		},
		{name: "a page of 50 with the last versions of each", query: `{ projects(` + page + `) { nodes { key versions(first: 3) { nodes { ` + ten + ` } } } } }`, want: `"version":8`},
		{
			name:  "a page of 50 with the first versions of each, and how many there are",
			query: `{ projects(orderBy: [{field: key}], first: 50) { nodes { key versions(last: 2) { totalCount nodes { version } } } } }`, want: `"totalCount":150`,
		},
		{name: "a page of a document's versions", query: `{ projectHistory(key: "project07") { versions(first: 5) { nodes { version } } } }`, want: `"version":10`},
		{name: "a page of a document's changelog", query: `{ projectHistory(key: "project07") { changelog(first: 5) { nodes { path } } } }`, want: `"/stars"`},
		{name: "a page of a long changelog", query: `{ projectHistory(key: "long") { changelog(first: 20) { nodes { path } } } }`, want: `"/stars"`},
		{name: "blame", query: `{ projectHistory(key: "project07") { blame { path } } }`, want: `"/stars"`},
		{name: "a diff of two versions", query: `{ projectHistory(key: "project07") { diff(from: {version: 3}, to: {version: 5}) { jsonPatch } } }`, want: `/stars`},
		{name: "a diff of two versions of long ago", query: `{ projectHistory(key: "long") { diff(from: {version: 3}, to: {version: 5}) { jsonPatch } } }`, want: `/stars`},
		{name: "the changelog of a type, a page of 20", query: `{ changelog(where: {documentType: [Project]}, first: 20) { nodes { path } } }`, want: `"path":`},
		{name: "the changelog of all documents, a page of 20", query: `{ changelog(first: 20) { nodes { path } } }`, want: `"path":`},
		{name: "the changelog of a small type, a page of 5 with the total", query: `{ changelog(where: {documentType: [License]}, first: 5) { totalCount nodes { path } } }`, want: `"totalCount":20`},
		{
			name:  "a create",
			query: `mutation($key: ID!) { createProject(input: {key: $key, data: {name: "New", description: "", licenses: [], platforms: [], tags: []}}) { ... on CreateProjectSuccess { version } } }`,
			want:  `"version":1`, key: func() string { return "zznew" + fresh() },
		},
		{
			name:  "a create of what is there, a conflict",
			query: `mutation($key: ID!) { createProject(input: {key: $key, data: {name: "New", description: "", licenses: [], platforms: [], tags: []}}) { ... on ProjectConflict { actualVersion } } }`,
			want:  `"actualVersion":10`, key: fresh,
		},
		{
			name:  "an update on the right version",
			query: update + `expectedVersion: 10, patch: {stars: 1}}) { ... on UpdateProjectSuccess { version } } }`, want: `"version":11`,
			key: fresh, before: seen,
		},
		{
			name:  "an update on the right version, which another server has just written",
			query: update + `expectedVersion: 11, patch: {stars: 1}}) { ... on UpdateProjectSuccess { version } } }`, want: `"version":12`,
			key: fresh, before: superseded, fleet: true,
		},
		{
			name:  "an update on an earlier version, a conflict",
			query: update + `expectedVersion: 8, patch: {stars: 1}}) { ... on ProjectConflict { actualVersion overlappingPaths } } }`, want: `"actualVersion":10`,
			key: fresh,
		},
		{
			name:  "an update on an earlier version, merged",
			query: update + `expectedVersion: 8, onConflict: MERGE, patch: {description: "Else"}}) { ... on UpdateProjectSuccess { version merged } } }`, want: `"merged":true`,
			key: fresh,
		},
		{
			name:  "an update on an earlier version that cannot be merged, a conflict",
			query: update + `expectedVersion: 8, onConflict: MERGE, patch: {stars: 1}}) { ... on ProjectConflict { overlappingPaths } } }`, want: `"/stars"`,
			key: fresh,
		},
		{
			name:  "an update on a version that another server has superseded, a conflict",
			query: update + `expectedVersion: 10, patch: {stars: 1}}) { ... on ProjectConflict { actualVersion overlappingPaths } } }`, want: `"actualVersion":11`,
			key: fresh, before: superseded, fleet: true, told: 2,
		},
		{
			name:  "an update on a version that another server has superseded, merged",
			query: update + `expectedVersion: 10, onConflict: MERGE, patch: {description: "Else"}}) { ... on UpdateProjectSuccess { version merged } } }`, want: `"merged":true`,
			key: fresh, before: superseded, fleet: true, told: 4,
		},
		{
			name:  "a delete",
			query: `mutation($key: ID!) { deleteProject(input: {key: $key, expectedVersion: 10}) { ... on DeleteProjectSuccess { version } } }`, want: `"version":11`,
			key: fresh, before: seen,
		},
		{
			name:  "a restore",
			query: `mutation($key: ID!) { restoreProject(input: {key: $key, expectedVersion: 10, to: {version: 3}}) { ... on RestoreProjectSuccess { version } } }`, want: `"version":11`,
			key: fresh,
		},
		{
			name:  "a restore of a version of long ago",
			query: `mutation($key: ID!) { restoreProject(input: {key: $key, expectedVersion: 80, to: {version: 3}}) { ... on RestoreProjectSuccess { version } } }`, want: `"version":81`,
			key: freshLong,
		},
		{
			name:  "a restore of a deleted document",
			query: `mutation($key: ID!) { restoreProject(input: {key: $key, expectedVersion: 11, to: {version: 3}}) { ... on RestoreProjectSuccess { version } } }`, want: `"version":12`,
			key: fresh, before: deleted,
		},
	}
	// counted is how many commands a request takes, the least of some tries.
	counted := func(r *requestOf, tries int) int {
		t.Helper()
		var least []string
		for try := range tries {
			variables := map[string]any{}
			if r.key != nil {
				variables["key"] = r.key()
			}
			if r.before != nil {
				r.before(variables["key"].(string))
			}
			counter.take(0)
			a := s.ask(t, r.query, variables)
			sent := counter.take(r.told)
			if text := fmt.Sprintf("%s", a.Data); len(a.Errors) > 0 || !strings.Contains(text, r.want) {
				t.Errorf("%s: %v, %s", r.name, a.Errors, text)
			}
			if try == 0 || len(sent) < len(least) {
				least = sent
			}
		}
		t.Logf("%s: %q", r.name, least)
		return len(least)
	}
	for _, query := range []string{`{ projects(asOf: "` + middle + `") { nodes { key } } }`, `{ tags(asOf: "` + middle + `") { nodes { key } } }`} {
		if a := s.ask(t, query, nil); len(a.Errors) > 0 { // the first page of the past finds out what is past
			t.Fatal(a.Errors)
		}
	}
	alone := make([]int, len(requests))
	for i := range requests {
		if !requests[i].fleet {
			alone[i] = counted(&requests[i], 1)
		}
	}
	other = startServer(t, program, direct, "--prune-rate=0")
	counter.mu.Lock()
	counter.fleet = true
	counter.mu.Unlock()
	var got strings.Builder
	for i := range requests {
		r := &requests[i]
		shared := counted(r, requestTries)
		if r.fleet {
			_, _ = fmt.Fprintf(&got, "| %s | | %d in all |\n", r.name, shared)
		} else {
			_, _ = fmt.Fprintf(&got, "| %s | %d | %d more |\n", r.name, alone[i], shared-alone[i])
		}
	}
	golden, err := os.ReadFile(filepath.Join("testdata", "requests.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), got.String()); diff != "" {
		t.Errorf("testdata/requests.golden (-golden +counted):\n%s", diff)
	}
	manual, err := os.ReadFile(filepath.Join("..", "docs", "mongodb.md"))
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`\| request \| commands \| with several servers \|\n\|---\|---\|---\|\n((?:\|.*\|\n)*)`).FindSubmatch(manual)
	if table == nil {
		t.Fatal("docs/mongodb.md has no table of requests and their commands")
	}
	for row := range strings.Lines(string(table[1])) {
		if !strings.Contains(got.String(), row) {
			t.Errorf("docs/mongodb.md: this was not counted: %s", row)
		}
	}
}
