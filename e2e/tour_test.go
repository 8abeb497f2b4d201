package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

var update = flag.Bool("update", false, "write the answers of the README and of the tour into them")

const (
	readmePage = "../README.md"
	tourPage   = "../docs/tour.md"
)

// A request that a page prints and, behind it, its answer. Blocks of types are no
// requests.
var printed = regexp.MustCompile("(?s)```graphql\n((?:\\{|query|mutation).*?)```\n(?:\n```json\n(.*?)```\n)?")

// TestTour runs the requests of the README and of the tour on a fresh demo, in
// their order and exactly as printed, and compares the answers.
func TestTour(t *testing.T) {
	for page, requests := range map[string]int{readmePage: 3, tourPage: 10} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, executor := range executors() {
			t.Run(filepath.Base(page)+"/"+executor, func(t *testing.T) {
				written := compared(t, text, requests, executor)
				if !*update {
					return
				}
				if err := os.WriteFile(page, written, 0o644); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// compared compares the answers in a page's text with those of a fresh demo, and
// returns the text with the latter. A page with another number of requests is an
// error.
func compared(t *testing.T, text []byte, requests int, executor string) []byte {
	demo := startServer(t, program, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), "--demo", "--executor", executor)
	found := printed.FindAllSubmatch(text, -1)
	if len(found) != requests {
		t.Fatalf("the page has %d requests, want %d", len(found), requests)
	}
	i := 0
	return printed.ReplaceAllFunc(text, func([]byte) []byte {
		query, want := string(found[i][1]), string(found[i][2])
		i++
		got := printedAnswer(t, demo, query)
		if diff := cmp.Diff(want, got); diff != "" && !*update {
			t.Errorf("request %d (-printed +answered):\n%s", i, diff)
		}
		return fmt.Appendf(nil, "```graphql\n%s```\n\n```json\n%s```\n", query, got)
	})
}

// The tour has every root field of the demo's types, for one or another, and what
// makes up an API with time: a reader of its ten requests has seen it.
func TestTourShowsEverything(t *testing.T) {
	text, err := os.ReadFile(tourPage)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool) // fields and arguments; of root fields, without the type
	for _, m := range printed.FindAllSubmatch(text, -1) {
		doc, err := parser.ParseQuery(&ast.Source{Input: string(m[1])})
		if err != nil {
			t.Fatalf("%v\n%s", err, m[1])
		}
		for _, operation := range doc.Operations {
			for _, s := range operation.SelectionSet {
				if f, ok := s.(*ast.Field); ok {
					shown[string(operation.Operation)+" "+kindOf(f.Name)] = true
				}
			}
			note(shown, operation.SelectionSet)
		}
	}
	demo := startServer(t, program, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), "--demo")
	schema := read[struct {
		QueryType, MutationType struct{ Fields []struct{ Name string } }
	}](t, demo, "{ __schema { queryType { fields { name } } mutationType { fields { name } } } }", nil)
	var want []string
	for _, f := range schema.QueryType.Fields {
		// Who adds a type adds nothing to the tour. Ids of drafts are others each time: TestClientsDrafts.
		if documentType.MatchString(f.Name) && !strings.HasPrefix(kindOf(f.Name), "Draft") {
			want = append(want, "query "+kindOf(f.Name))
		}
	}
	for _, f := range schema.MutationType.Fields {
		if documentType.MatchString(f.Name) && !strings.HasSuffix(f.Name, "Version") { // tags are in growing-old.md
			want = append(want, "mutation "+kindOf(f.Name))
		}
	}
	want = append(want, "query node", "query nodes", "query changelog")
	want = append(want, strings.Fields(`versionInfo versions changelog blame diff jsonPatch totalCount endCursor
		asOf version from to where orderBy first after fields authors expectedVersion patch onConflict paths message`)...)
	for _, name := range want {
		if !shown[name] {
			t.Errorf("the tour does not show: %s", name)
		}
	}
}

// kindOf is a root field's name without the document type: create for createTag.
func kindOf(name string) string {
	return documentType.ReplaceAllString(name, "$1")
}

// documentType is a type of the demo in the name of a root field, if that does
// not begin with it.
var documentType = regexp.MustCompile("(?i)^(create|update|delete|restore|)(?:project|tag|license|platform)")

// note notes the names of fields, of arguments, and of members of their values.
func note(shown map[string]bool, set ast.SelectionSet) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			shown[s.Name] = true
			for _, a := range s.Arguments {
				shown[a.Name] = true
				noteValue(shown, a.Value)
			}
			note(shown, s.SelectionSet)
		case *ast.InlineFragment:
			note(shown, s.SelectionSet)
		}
	}
}

func noteValue(shown map[string]bool, v *ast.Value) {
	for _, child := range v.Children {
		shown[child.Name] = true
		noteValue(shown, child.Value)
	}
}

// printedAnswer sends a query and formats the data of its answer as the pages
// show it: the fields in the order of the query.
func printedAnswer(t *testing.T, demo *server, query string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(demo.url+"/graphql", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var parsed struct{ Data, Errors json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&parsed); err != nil || parsed.Errors != nil {
		t.Fatalf("%s\n%s %v", query, parsed.Errors, err)
	}
	return compact(t, parsed.Data)
}

// compact indents JSON, but leaves on one line what fits there.
func compact(t *testing.T, data []byte) string {
	t.Helper()
	var out strings.Builder
	var write func(raw json.RawMessage, indent string, room int)
	write = func(raw json.RawMessage, indent string, room int) {
		line := oneLine(raw)
		if len(line) <= room || (line[0] != '{' && line[0] != '[') {
			out.WriteString(line)
			return
		}
		closing := map[byte]string{'{': "}", '[': "]"}[line[0]]
		out.WriteString(line[:1] + "\n")
		dec := json.NewDecoder(bytes.NewReader(raw))
		_, _ = dec.Token()
		for first := true; dec.More(); first = false {
			if !first {
				out.WriteString(",\n")
			}
			inner := indent + "  "
			out.WriteString(inner)
			width := 116 - len(inner)
			if line[0] == '{' {
				name, err := dec.Token()
				if err != nil {
					t.Fatal(err)
				}
				label := fmt.Sprintf("%q: ", name)
				out.WriteString(label)
				width -= len(label)
			}
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				t.Fatal(err)
			}
			write(value, inner, width)
		}
		out.WriteString("\n" + indent + closing)
	}
	write(data, "", 116)
	return out.String() + "\n"
}

// oneLine writes JSON with a space behind each comma and colon.
func oneLine(raw json.RawMessage) string {
	var out strings.Builder
	quoted, escaped := false, false
	var flat bytes.Buffer
	if err := json.Compact(&flat, raw); err != nil {
		return string(raw)
	}
	for _, b := range flat.Bytes() {
		out.WriteByte(b)
		switch {
		case escaped:
			escaped = false
		case quoted && b == '\\':
			escaped = true
		case b == '"':
			quoted = !quoted
		case !quoted && (b == ',' || b == ':'):
			out.WriteByte(' ')
		}
	}
	return out.String()
}
