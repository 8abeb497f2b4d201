package app

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql/introspection"
)

// codes returns the codes of an answer's errors.
func (r reply) codes(t *testing.T) []string {
	t.Helper()
	var body struct {
		Errors []struct{ Extensions struct{ Code string } }
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Fatalf("status %d, %q: %v", r.status, r.body, err)
	}
	codes := []string{}
	for _, e := range body.Errors {
		codes = append(codes, e.Extensions.Code)
	}
	return codes
}

// Every flag for a limit takes effect, and is named by what it refuses.
func TestLimitFlags(t *testing.T) {
	p := serve(t, "--demo", "--max-body=2KB", "--max-query=1KB", "--max-tokens=200", "--max-depth=4",
		"--max-page=10", "--max-cost=200", "--max-answer=1KB")
	for name, c := range map[string]struct {
		document string
		status   int
		code     string
		text     string
	}{
		"body":   {`{projects(after: "` + strings.Repeat("x", 2048) + `") {totalCount}}`, 413, "BAD_USER_INPUT", "2048 bytes"},
		"query":  {`{projects(after: "` + strings.Repeat("x", 1024) + `") {totalCount}}`, 200, "QUERY_TOO_COMPLEX", "at most 1024"},
		"tokens": {`{projects(orderBy: [` + strings.Repeat(`{field: key}`, 40) + `]) {totalCount}}`, 200, "QUERY_TOO_COMPLEX", "200 tokens"},
		"depth":  {`{projects {nodes {tags {relatedTags {name}}}}}`, 200, "QUERY_TOO_COMPLEX", "5 levels deep"},
		"page":   {`{projects(first: 11) {totalCount}}`, 200, "BAD_USER_INPUT", "first: 11"},
		"answer": {`{projects(first: 10) {nodes {name description websiteUrl sourceCodeUrl demoUrl}}}`, 200, "QUERY_TOO_COMPLEX", "longer than 1024 bytes"},
		"cost":   {`{projects(first: 10) {nodes {tags {name key id version}}}}`, 200, "QUERY_TOO_COMPLEX", "at most 200"},
	} {
		t.Run(name, func(t *testing.T) {
			got := p.query(t, c.document)
			if codes := fmt.Sprint(got.codes(t)); got.status != c.status || codes != "["+c.code+"]" || !strings.Contains(got.body, c.text) ||
				!strings.Contains(got.body, "--max-"+name) {
				t.Errorf("status %d, %s", got.status, got.body)
			}
		})
	}
	if got := p.query(t, `{projects(first: 10) {nodes {name}}}`); got.status != 200 || len(got.codes(t)) != 0 {
		t.Errorf("a query within the limits: %s", got.body)
	}
}

// What compares versions is dearer than what it returns. The limit is one below
// the cost.
func TestWeights(t *testing.T) {
	const page = 1 + 20 // projects, and what is on its page: 20 of each field below
	for document, cost := range map[string]int{
		`{projects {nodes {key}}}`:                                         page + 20,
		`{projects {nodes {blame {path}}}}`:                                page + 20*(1+50+5),
		`{projects {nodes {diff(from: {version: 1}) {changes {path}}}}}`:   page + 20*(1+20+1+5),
		`{projects {nodes {changelog(first: 2) {nodes {path}}}}}`:          page + 20*(1+20+2*2),
		`{projects {nodes {changelog {totalCount}}}}`:                      page + 20*(1+20+20+500),
		`{projects {nodes {versions(first: 2) {edges {changes {path}}}}}}`: page + 20*(1+2*(1+1+10+5)),
		`{projects {nodes {versions(first: 1) {totalCount}}}}`:             page + 20*(1+1+100),
		`mutation {commit(input: {changes: [` + strings.Repeat(`{deleteTag: {key: "x", expectedVersion: 1}} `, 7) + `]}) {... on CommitSuccess {results {version changes {path}}}}}`: 1 + 1 + 7*(1+1+5),
		`{changelog(first: 3) {nodes {path} ...F}} fragment F on FieldChangeConnection {totalCount}`:                                                                                 1 + 20 + 3*(1+1+1) + 500,
	} {
		t.Run(document, func(t *testing.T) {
			got := serve(t, fmt.Sprintf("--max-cost=%d", cost-1)).query(t, document)
			if want := fmt.Sprintf("may return %d fields", cost); !strings.Contains(got.body, want) {
				t.Errorf("%s; want %s", got.body, want)
			}
		})
	}
}

// Each change of a commit has a result, also where they are in a variable.
func TestCostOfCommits(t *testing.T) {
	p := serve(t, "--max-cost=100")
	for n, want := range map[int]string{3: "[]", 100: "[QUERY_TOO_COMPLEX]"} {
		changes := make([]any, n)
		for i := range changes {
			changes[i] = map[string]any{"createTag": map[string]any{"key": fmt.Sprint(n, "-", i), "data": map[string]any{"name": "x", "description": "x"}}}
		}
		body, err := json.Marshal(map[string]any{
			"query":     `mutation($in: CommitInput!) {commit(input: $in) {...F}} fragment F on CommitSuccess {results {deletedId}}`,
			"variables": map[string]any{"in": map[string]any{"changes": changes}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.do(t, "POST", "/graphql", string(body), "Content-Type", "application/json"); fmt.Sprint(got.codes(t)) != want {
			t.Errorf("%d changes: %.500s", n, got.body)
		}
	}
}

// Values of variables, and their defaults, are read wherever they are used.
func TestVariablesUsedOften(t *testing.T) {
	p := serve(t)
	times := func(n int, text string) string { return strings.Repeat(text, n) }
	where := `{or: [` + times(97, `{not: {not: {not: {}}}}`) + `]}`
	ask := func(query string, variables map[string]any) reply {
		body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
		if err != nil {
			t.Fatal(err)
		}
		return p.do(t, "POST", "/graphql", string(body), "Content-Type", "application/json")
	}
	list := make([]any, 2000)
	for i := range list {
		list[i] = []any{}
	}
	const create = `{createProject(input: {key: "a", data: {name: "A", description: "", commitHistory: [%s]}}) {__typename}}`
	for query, variables := range map[string]map[string]any{
		`query ($k: TagWhere = ` + where + `) {tags(where: {or: [` + times(2400, "$k ") + `]}) {totalCount}}`:                                                nil,
		`query ($k: TagWhere = ` + where + `) {` + times(45, "...F ") + `} fragment F on Query {tags(where: {or: [` + times(60, "$k ") + `]}) {totalCount}}`: nil,
		`mutation ($k: JSON!) ` + fmt.Sprintf(create, times(4800, "$k ")):                                                                                    {"k": list},
		`mutation ($k: JSON!) ` + fmt.Sprintf(create, times(2400, "$k ")):                                                                                    {"k": times(50_000, "x")},
		`query ($f: [TagField!]) {tags {nodes {a: versions(fields: $f) {nodes {key}} b: versions(fields: $f) {nodes {key}}}}}`:                               {"f": slices.Repeat([]any{"name"}, 9000)},
	} {
		if got := ask(query, variables); fmt.Sprint(got.codes(t)) != "[QUERY_TOO_COMPLEX]" || !strings.Contains(got.body, "each as often as it is used") && !strings.Contains(got.body, "more steps than") {
			t.Errorf("%.100s: %.500s", query, got.body)
		}
	}
	for query, variables := range map[string]map[string]any{
		`query ($k: TagWhere = ` + where + `) {a: tags(where: $k) {totalCount} b: tags(where: $k, first: 2) {nodes {key}}}`: nil,
		`mutation ($k: JSON!) ` + fmt.Sprintf(create, "$k"):                                                                 {"k": times(900_000, "x")},
	} {
		if got := ask(query, variables); len(got.codes(t)) != 0 {
			t.Errorf("%.100s: %.500s", query, got.body)
		}
	}
}

func TestDocumentLimit(t *testing.T) {
	p := serve(t, "--max-document=1KB")
	create := func(key string, size int) reply {
		return p.query(t, fmt.Sprintf(`mutation {createTag(input: {key: %q, data: {name: "x", description: %q}}) {__typename}}`, key, strings.Repeat("x", size)))
	}
	if got := create("fits", 900); len(got.codes(t)) != 0 {
		t.Error(got.body)
	}
	if got := create("large", 1024); fmt.Sprint(got.codes(t)) != "[BAD_USER_INPUT]" || !strings.Contains(got.body, "at most 1024 are allowed (--max-document of asof serve)") {
		t.Error(got.body)
	}
}

func TestLargePages(t *testing.T) {
	p := serve(t, "--demo", "--max-page=1000")
	if got := p.query(t, `{projects(first: 1000) {totalCount}}`); len(got.codes(t)) != 0 {
		t.Error(got.body)
	}
	if got := p.query(t, `{projects(first: 1001) {totalCount}}`); fmt.Sprint(got.codes(t)) != "[BAD_USER_INPUT]" {
		t.Error(got.body)
	}
}

func TestIntrospection(t *testing.T) {
	const query = `{__schema {queryType {name}}}`
	if got := serve(t).query(t, query); !strings.HasPrefix(got.body, `{"data":{"__schema":{"queryType":{"name":"Query"}}}`) {
		t.Error(got.body)
	}
	p := serve(t, "--no-introspection")
	for name, query := range map[string]string{
		"schema":          query,
		"type":            `{__type(name: "Query") {name}}`,
		"beside others":   `{tags {totalCount} __schema {queryType {name}}}`,
		"inline fragment": `{... on Query {__schema {queryType {name}}}}`,
		"fragments":       `query {...A} fragment A on Query {...B __typename} fragment B on Query {s: __schema {queryType {name}}}`,
	} {
		got := p.query(t, query)
		if fmt.Sprint(got.codes(t)) != "[FORBIDDEN]" || !strings.Contains(got.body, "--no-introspection") ||
			!strings.Contains(got.body, `"locations":[{"line":1,`) || strings.Contains(got.body, `"data"`) {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	if got := p.query(t, `query {...A ...A} fragment A on Query {__typename tag(key: "none") {__typename}}`); len(got.codes(t)) != 0 {
		t.Errorf("__typename: %s", got.body)
	}
	if page := p.do(t, "GET", "/", "").body; !strings.Contains(page, `name="asof-introspection" content="off"`) {
		t.Errorf("the Playground does not know of it: %s", page)
	}
}

// The schema can be asked for as a whole, and not as often as an operation has room for.
func TestIntrospectionIsBounded(t *testing.T) {
	p := serve(t, "--max-execution=10m", "--max-time=10m") // what is counted ends it, however slow the machine
	if got := p.query(t, introspection.Query); len(got.codes(t)) != 0 || !strings.Contains(got.body, `"name":"Mutation"`) {
		t.Errorf("the whole schema: %.500s", got.body)
	}
	var types, names strings.Builder
	for i := range 48 {
		fmt.Fprintf(&types, "t%d: types {...F} ", i)
		fmt.Fprintf(&names, "n%d: __typename ", i)
	}
	for name, query := range map[string]string{
		"fields": `{__schema {` + types.String() + `}} fragment F on __Type {fields {name args {name type {kind ofType {kind name}}} type {name kind ofType {name kind}}}
			inputFields {name type {name kind ofType {name kind ofType {name}}}}}`,
		"names of types": `{__schema {` + types.String() + `}} fragment F on __Type {fields {` + names.String() + `}}`,
	} {
		if got := p.query(t, query); fmt.Sprint(got.codes(t)) != "[QUERY_TOO_COMPLEX]" || strings.Contains(got.body, `"data"`) || !strings.Contains(got.body, "the answer has more than 100000 fields") {
			t.Errorf("%s: %.500s", name, got.body)
		}
	}
}

// What is not HTTP, or too much of it, is refused before anything is executed.
func TestHostileConnections(t *testing.T) {
	p := serve(t)
	for name, c := range map[string]struct{ request, answer string }{
		"not HTTP":       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "HTTP/1.1 400 "},
		"huge header":    {"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		"two lengths":    {"POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 400 "},
		"no host":        {"GET /graphql HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		"100 MB claimed": {"POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n{", "HTTP/1.1 413 "},
		"bad actor":      {"POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Actor: a\x01b\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 400 "},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			// The server may answer before it has read everything.
			go func() { _, _ = io.WriteString(conn, c.request) }()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if !strings.HasPrefix(line, c.answer) {
				t.Errorf("%q, %v; want %q", line, err, c.answer)
			}
		})
	}
	if got := p.query(t, `{__typename}`); got.body == "" || got.status != 200 {
		t.Errorf("afterwards: %+v", got)
	}
}
