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

// commandCounter counts what a server is sent for requests: not how servers tell
// each other that they are there, nor how connections are made and watched.
type commandCounter struct {
	mu   sync.Mutex
	sent []string
}

func (c *commandCounter) answer(command mongotest.Command) mongotest.Answer {
	if command.Hello() || command.Collection() == "asof.meta" || command.Name == "endSessions" {
		return mongotest.Pass()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, command.Name+" "+command.Collection())
	return mongotest.Pass()
}

func (c *commandCounter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

// requestCatalog writes documents with histories: projects of ten versions with
// references, and one whose history is long enough to leave the document.
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
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestRequestsOnMongoDB holds the number of commands that each kind of request
// takes against the table in docs/mongodb.md.
func TestRequestsOnMongoDB(t *testing.T) {
	counter := &commandCounter{}
	proxy, store, _ := mongotest.NewServer(t).Behind(t)
	run(t, program, "import", "--store", store, requestCatalog(t))
	s := startServer(t, program, store)
	proxy.Set(counter.answer)

	const (
		middle = "2024-01-01T05:20:00Z" // amid the ten versions of the projects
		early  = "2024-01-01T10:40:00Z" // of the long history, in the overflow
		ten    = `key version name stars description`
		page   = `orderBy: [{field: stars, direction: DESC}], first: 50`
	)
	version := func(key string) (n int) {
		t.Helper()
		n = read[struct{ Version int }](t, s, `query($key: ID!) { project(key: $key) { version } }`, map[string]any{"key": key}).Version
		counter.take()
		return n
	}
	requests := []struct {
		name, query string
		variables   func() map[string]any
		want        string // in the answer
	}{
		{"a document", `{ project(key: "project07") { ` + ten + ` } }`, nil, `"version":10`},
		{"a document as of a recent instant", `{ project(key: "project07", asOf: "` + middle + `") { ` + ten + ` } }`, nil, `"version":5`},
		{"a document by a recent number", `{ project(key: "project07", version: 4) { ` + ten + ` } }`, nil, `"version":4`},
		{"a document as of an instant of long ago", `{ project(key: "long", asOf: "` + early + `") { ` + ten + ` } }`, nil, `"version":20`},
		{"a document by a number of long ago", `{ project(key: "long", version: 3) { ` + ten + ` } }`, nil, `"version":3`},
		{"a document with its tags and licenses", `{ project(key: "project07") { ` + ten + ` tags { name } licenses { name } } }`, nil, `"Tag 7"`},
		{"a page of 50", `{ projects(` + page + `) { nodes { ` + ten + ` } pageInfo { hasNextPage } } }`, nil, `"hasNextPage":true`},
		{"a page of 50 with the total", `{ projects(` + page + `) { totalCount nodes { ` + ten + ` } } }`, nil, `"totalCount":61`},
		{"a page of 50 with tags and licenses", `{ projects(` + page + `) { nodes { ` + ten + ` tags { name } licenses { name } } } }`, nil, `"Tag 7"`},
		{"a page of 50 as of an instant", `{ projects(asOf: "` + middle + `", ` + page + `) { nodes { ` + ten + ` } } }`, nil, `"version":5`},
		{
			"a page of 50 as of an instant, with tags and licenses",
			`{ projects(asOf: "` + middle + `", ` + page + `) { nodes { ` + ten + ` tags { name } licenses { name } } } }`, nil, `"Tag 7"`,
		},
		{"a page of 50 with the last versions of each", `{ projects(` + page + `) { nodes { key versions(first: 3) { nodes { ` + ten + ` } } } } }`, nil, `"version":8`},
		{
			"a page of 50 with the first versions of each, and how many there are",
			`{ projects(orderBy: [{field: key}], first: 50) { nodes { key versions(last: 2) { totalCount nodes { version } } } } }`, nil, `"totalCount":150`,
		},
		{"a page of a document's versions", `{ projectHistory(key: "project07") { versions(first: 5) { nodes { version } } } }`, nil, `"version":10`},
		{"a page of a document's changelog", `{ projectHistory(key: "project07") { changelog(first: 5) { nodes { path } } } }`, nil, `"/stars"`},
		{"a page of a long changelog", `{ projectHistory(key: "long") { changelog(first: 20) { nodes { path } } } }`, nil, `"/stars"`},
		{"blame", `{ projectHistory(key: "project07") { blame { path } } }`, nil, `"/stars"`},
		{"a diff of two versions", `{ projectHistory(key: "project07") { diff(from: {version: 3}, to: {version: 5}) { jsonPatch } } }`, nil, `/stars`},
		{"the changelog of a type, a page of 20", `{ changelog(where: {documentType: [Project]}, first: 20) { nodes { path } } }`, nil, `"/stars"`},
		{"the changelog of all documents, a page of 20", `{ changelog(first: 20) { nodes { path } } }`, nil, `"/stars"`},
		{
			"a create", `mutation { createProject(input: {key: "new", data: {name: "New", description: "", licenses: [], platforms: [], tags: []}}) { ... on CreateProjectSuccess { version } } }`,
			nil, `"version":1`,
		},
		{
			"an update on the right version", `mutation($v: Int!) { updateProject(input: {key: "project01", expectedVersion: $v, patch: {stars: 1}}) { ... on UpdateProjectSuccess { version } } }`,
			func() map[string]any { return map[string]any{"v": version("project01")} }, `"version":11`,
		},
		{
			"an update on an earlier version, a conflict",
			`mutation { updateProject(input: {key: "project02", expectedVersion: 8, patch: {stars: 1}}) { ... on ProjectConflict { actualVersion overlappingPaths } } }`,
			nil, `"actualVersion":10`,
		},
		{
			"an update on an earlier version, merged",
			`mutation { updateProject(input: {key: "project03", expectedVersion: 8, onConflict: MERGE, patch: {description: "Else"}}) { ... on UpdateProjectSuccess { version merged } } }`,
			nil, `"merged":true`,
		},
		{
			"a delete", `mutation($v: Int!) { deleteProject(input: {key: "project04", expectedVersion: $v}) { ... on DeleteProjectSuccess { version } } }`,
			func() map[string]any { return map[string]any{"v": version("project04")} }, `"version":11`,
		},
		{
			"a restore", `mutation($v: Int!) { restoreProject(input: {key: "project05", expectedVersion: $v, to: {version: 3}}) { ... on RestoreProjectSuccess { version } } }`,
			func() map[string]any { return map[string]any{"v": version("project05")} }, `"version":11`,
		},
	}
	var got strings.Builder
	for _, r := range requests {
		var variables map[string]any
		if r.variables != nil {
			variables = r.variables()
		}
		counter.take()
		a := s.ask(t, r.query, variables)
		sent := counter.take()
		if text := fmt.Sprintf("%s", a.Data); len(a.Errors) > 0 || !strings.Contains(text, r.want) {
			t.Errorf("%s: %v, %s", r.name, a.Errors, text)
		}
		t.Logf("%s: %q", r.name, sent)
		_, _ = fmt.Fprintf(&got, "| %s | %d |\n", r.name, len(sent))
	}
	manual, err := os.ReadFile(filepath.Join("..", "docs", "mongodb.md"))
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`\| request \| commands \|\n\|---\|---\|\n((?:\|.*\|\n)*)`).FindSubmatch(manual)
	if table == nil {
		t.Fatal("docs/mongodb.md has no table of requests and their commands")
	}
	if diff := cmp.Diff(string(table[1]), got.String()); diff != "" {
		t.Errorf("the table in docs/mongodb.md (-documented +counted):\n%s", diff)
	}
}
