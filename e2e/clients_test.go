package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// clientsPage is what client programmers are told.
const clientsPage = "../docs/clients.md"

// onDemo has a check made of a demo with each executor.
func onDemo(t *testing.T, check func(t *testing.T, demo *server), flags ...string) {
	for _, executor := range executors() {
		t.Run(executor, func(t *testing.T) {
			flags := append([]string{"--demo", "--executor", executor}, flags...)
			check(t, startServer(t, program, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), flags...))
		})
	}
}

// Each of the page's own queries is answered by the demo.
func TestClientsQueries(t *testing.T) { onDemo(t, clientsQueries) }

func clientsQueries(t *testing.T, demo *server) {
	text, err := os.ReadFile(clientsPage)
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{
		"at": "2025-06-20T00:00:00Z", "last": "2025-06-14T00:00:00Z",
		"input":   map[string]any{"key": "home-automation", "expectedVersion": 1, "patch": map[string]any{"name": "Home"}},
		"project": map[string]any{"key": "lanternfish", "expectedVersion": 1, "patch": map[string]any{"name": "Lantern"}},
		"tag":     map[string]any{"key": "lanterns", "data": map[string]any{"name": "Lanterns", "description": "Lights to carry."}},
	}
	queries := printed.FindAllSubmatch(text, -1)
	if len(queries) != 5 {
		t.Errorf("the page has %d queries, want 5", len(queries))
	}
	for _, m := range queries {
		query, used := string(m[1]), map[string]any{}
		if strings.Contains(query, "startProjectDraft") {
			continue // see TestClientsDrafts
		}
		for name, value := range variables {
			if strings.Contains(query, "$"+name) {
				used[name] = value
			}
		}
		if got := demo.text(t, query, used); strings.Contains(got, `"errors"`) || !strings.Contains(got, `"changedBy"`) {
			t.Errorf("%s\n%s", query, got)
		}
	}
}

// The page's operations on drafts lead from a draft to a version.
func TestClientsDrafts(t *testing.T) { onDemo(t, clientsDrafts) }

func clientsDrafts(t *testing.T, demo *server) {
	text, err := os.ReadFile(clientsPage)
	if err != nil {
		t.Fatal(err)
	}
	var operations string
	for _, m := range printed.FindAllSubmatch(text, -1) {
		if strings.Contains(string(m[1]), "startProjectDraft") {
			operations = string(m[1])
		}
	}
	var draft string
	for _, step := range []struct {
		name      string
		variables map[string]any
		want      string
	}{
		{"Start", nil, `"revision":1`},
		{"Save", map[string]any{"revision": 1, "patch": map[string]any{"name": nil}}, `"problems":[{"path":"/name",`},
		{"Save", map[string]any{"revision": 1, "patch": map[string]any{"name": "Lanternfish 4"}}, `"revision":2,"savedBy"`},
		{"Save", map[string]any{"revision": 2, "patch": map[string]any{"name": "Lanternfish 4"}}, `"problems":[]`},
		{"Review", nil, `"changesFromBase":[{"path":"/name","oldValue":"Lanternfish Photos","newValue":"Lanternfish 4"}]`},
		{"Approve", map[string]any{"revision": 3}, `"name":"Lanternfish 4","versionInfo":{"author":{"id":"anonymous"},"approvedBy":{"id":"anonymous"}}`},
	} {
		variables := map[string]any{"draft": draft}
		maps.Copy(variables, step.variables)
		if step.name == "Start" {
			variables = nil
		}
		body, err := json.Marshal(map[string]any{"query": operations, "operationName": step.name, "variables": variables})
		if err != nil {
			t.Fatal(err)
		}
		got := demo.post(t, body)
		if strings.Contains(got, `"errors"`) || !strings.Contains(got, step.want) {
			t.Fatalf("%s: %s, want %s", step.name, got, step.want)
		}
		if draft == "" {
			draft = gjson.Get(got, "data.startProjectDraft.draft.id").String()
		}
	}
}

// What the page says of caches: an id names a version, not the references of the
// instant at which it was read; with the instant, or by version, they are told apart.
func TestClientsCaches(t *testing.T) { onDemo(t, clientsCaches) }

func clientsCaches(t *testing.T, demo *server) {
	const tags = `id tags { name } pinned: tags(asOf: $at) { name }`
	for at, want := range map[string]string{
		"2025-04-02T00:00:00Z": `{"id":"Project:hearth@16","tags":[{"name":"Home automation"}],"pinned":[{"name":"Home automation"}]}`,
		"2025-04-03T00:00:00Z": `{"id":"Project:hearth@16","tags":[{"name":"Smart home"}],"pinned":[{"name":"Smart home"}]}`,
	} {
		query := `query($at: DateTime) { project(key: "hearth", asOf: $at) { ` + tags + ` } }`
		if got := demo.text(t, query, map[string]any{"at": at}); !strings.Contains(got, want) {
			t.Errorf("as of %s: %s\nwant %s", at, got, want)
		}
	}
	const want = `{"id":"Project:hearth@16","tags":[{"name":"Home automation"}]}`
	if got := demo.text(t, `{ project(key: "hearth", version: 16) { id tags { name } } }`, nil); !strings.Contains(got, want) {
		t.Errorf("by version: %s\nwant %s", got, want)
	}
	// What JavaScript's Date leaves of an instant is before it.
	const recorded = "2025-01-13T04:00:00.000021Z"
	instant, err := time.Parse(time.RFC3339, recorded)
	if err != nil {
		t.Fatal(err)
	}
	for at, version := range map[string]int{recorded: 3, instant.Truncate(time.Millisecond).Format(time.RFC3339Nano): 2} {
		got := demo.text(t, `query($at: DateTime) { project(key: "hearth", asOf: $at) { version } }`, map[string]any{"at": at})
		if !strings.Contains(got, fmt.Sprintf(`{"version":%d}`, version)) {
			t.Errorf("as of %s: %s, want version %d", at, got, version)
		}
	}
}

// What the page says of writes that are sent again because no answer came.
func TestClientsRetries(t *testing.T) { onDemo(t, clientsRetries) }

func clientsRetries(t *testing.T, demo *server) {
	const conflict = `... on TagConflict { actualVersion mergeable overlappingPaths current { name versionInfo { operation author { id } } } }`
	const update = `mutation { updateTag(input: { key: "k", expectedVersion: 1, patch: { name: "B" }%s }) {
		... on UpdateTagSuccess { version changed } ` + conflict + ` } }`
	for _, step := range []struct{ name, mutation, first, again string }{
		{
			"create", `mutation { createTag(input: { key: "k", data: { name: "A", description: "" } }) { ... on CreateTagSuccess { version } ` + conflict + ` } }`,
			`{"version":1}`,
			`{"actualVersion":1,"mergeable":false,"overlappingPaths":[],"current":{"name":"A","versionInfo":{"operation":"CREATE","author":{"id":"anonymous"}}}}`,
		},
		{
			"update", fmt.Sprintf(update, ""), `{"version":2,"changed":true}`,
			`{"actualVersion":2,"mergeable":true,"overlappingPaths":[],"current":{"name":"B","versionInfo":{"operation":"UPDATE","author":{"id":"anonymous"}}}}`,
		},
		{"update, merged", fmt.Sprintf(update, ", onConflict: MERGE"), `{"version":2,"changed":false}`, `{"version":2,"changed":false}`},
		{
			"restore", `mutation { restoreTag(input: { key: "k", expectedVersion: 2, to: { version: 1 } }) { ... on RestoreTagSuccess { version } ` + conflict + ` } }`,
			`{"version":3}`,
			`{"actualVersion":3,"mergeable":false,"overlappingPaths":[],"current":{"name":"A","versionInfo":{"operation":"RESTORE","author":{"id":"anonymous"}}}}`,
		},
		{
			"delete", `mutation { deleteTag(input: { key: "k", expectedVersion: 3 }) { ... on DeleteTagSuccess { version } ` + conflict + ` } }`,
			`{"version":4}`, `{"actualVersion":4,"mergeable":false,"overlappingPaths":[],"current":null}`,
		},
	} {
		for i, want := range []string{step.first, step.again} {
			if got := demo.text(t, step.mutation, nil); !strings.Contains(got, want) {
				t.Errorf("%s, sent %d times: %s\nwant %s", step.name, i+1, got, want)
			}
		}
	}
	if got := demo.text(t, `{ tagHistory(key: "k") { versions { totalCount } } }`, nil); !strings.Contains(got, `"totalCount":4`) {
		t.Errorf("something was written twice: %s", got)
	}
}

// What the page says of codes and statuses, for both media types of answers.
func TestClientsErrors(t *testing.T) { onDemo(t, clientsErrors, "--no-introspection") }

func clientsErrors(t *testing.T, demo *server) {
	text, err := os.ReadFile(clientsPage)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]struct {
		code           string
		older, current int // the statuses with application/json and with application/graphql-response+json
	}{
		`{"query": "{"}`:              {"BAD_USER_INPUT", 200, 400},
		`{"query": "{nope}"}`:         {"BAD_USER_INPUT", 200, 400},
		`{}`:                          {"BAD_USER_INPUT", 400, 400},
		`[{"query": "{__typename}"}]`: {"BAD_USER_INPUT", 400, 400},
		`{"query": "{tag(key: \"photos\", version: 99) {id}}"}`:                                 {"VERSION_NOT_FOUND", 200, 200},
		`{"query": "{tag(key: \"photos\", asOf: \"9999-01-01T00:00:00Z\") {id}}"}`:              {"AS_OF_IN_FUTURE", 200, 200},
		`{"query": "{tag(key: \"photos\", asOf: \"2025-02-01T00:00:00Z\", version: 1) {id}}"}`:  {"AMBIGUOUS_VERSION", 200, 200},
		`{"query": "{projects(first: 500) {nodes {tags {relatedTags {relatedTags {name}}}}}}"}`: {"QUERY_TOO_COMPLEX", 200, 400},
		`{"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "none"}}}`:              {"PERSISTED_QUERY_NOT_FOUND", 400, 400},
		`{"query": "{__schema {queryType {name}}}"}`:                                            {"FORBIDDEN", 200, 400},
		`{"query": "subscription {changelog {path}}"}`:                                          {"BAD_USER_INPUT", 200, 400},
	} {
		if !strings.Contains(string(text), "\n| "+want.code+" |") {
			t.Errorf("the page does not have %s", want.code)
		}
		for accept, status := range map[string]int{"application/json": want.older, "application/graphql-response+json": want.current} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, demo.url+"/graphql", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Accept", accept)
			got, code := answered(t, request)
			if got != status || code != want.code {
				t.Errorf("%s, as %s: %d %s, want %d %s", body, accept, got, code, status, want.code)
			}
		}
	}
}

// answered is the status of an answer, and the code of its first error.
func answered(t *testing.T, request *http.Request) (status int, code string) {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Errors []struct{ Extensions struct{ Code string } }
	}
	if err := json.Unmarshal(text, &body); err != nil || len(body.Errors) == 0 {
		t.Fatalf("status %d, %s: no error", response.StatusCode, text)
	}
	return response.StatusCode, body.Errors[0].Extensions.Code
}

// text is the answer to a query as it was sent.
func (s *server) text(t *testing.T, query string, variables map[string]any) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	return s.post(t, body)
}

func (s *server) post(t *testing.T, body []byte) string {
	t.Helper()
	response, err := http.Post(s.url+"/graphql", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
