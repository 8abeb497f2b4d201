package app

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/drivertest"
)

// greeting is what the server says at its start with a store and flags.
func greeting(t *testing.T, store string, args ...string) string {
	t.Helper()
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
	if _, err := m.ParseFlags(append([]string{"serve", "--sync=off", "--store=sqlite:" + store}, args...)); err != nil {
		t.Fatal(err)
	}
	opened, err := m.openStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Engine().Close() }()
	if m.flags.Serve.Demo {
		if _, err := demo.Fill(t.Context(), opened); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := opened.Engine().Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.greeting(t.Context(), "127.0.0.1:8080", opened.Engine(), stats)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestGreeting(t *testing.T) {
	store := filepath.Join(t.TempDir(), "asof.db")
	if got := greeting(t, store); !strings.Contains(got, "The store is empty") {
		t.Error(got)
	}
	for range 2 { // filled, and as it was
		if got := greeting(t, store, "--demo"); !strings.Contains(got, "curl -sG http://127.0.0.1:8080/graphql") || !strings.Contains(got, "(68 documents, 1948 versions)") {
			t.Error(got)
		}
	}
	other := filepath.Join(t.TempDir(), "asof.db")
	const line = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	if status, _, stderr := run(t, line, "import", "-", "--store=sqlite:"+other); status != 0 {
		t.Fatal(stderr)
	}
	if got := greeting(t, other, "--demo"); !strings.Contains(got, "--demo left it as it is") || strings.Contains(got, "curl") {
		t.Error(got)
	}
}

// The first query is what the greeting promises.
func TestFirstQuery(t *testing.T) {
	p := serve(t, "--demo")
	_, rest, _ := strings.Cut(firstQuery(p.url), "'query=")
	document, _, _ := strings.Cut(rest, "'")
	got := p.query(t, document).body
	for _, text := range []string{`"summer":{"version":`, `"name":"MIT License"`, `"name":"GNU Affero General Public License v3.0"`, `"changedBy":{"id":"`} {
		if !strings.Contains(got, text) {
			t.Errorf("no %s in %s", text, got)
		}
	}
	p.stop()
	if log := p.stderr.String(); !strings.Contains(log, "msg=operation") || strings.Contains(log, "not planned") {
		t.Errorf("what everybody sees first is logged as if something were wrong: %s", log)
	}
}

// The Playground of a schema without the demo's types begins with a query that
// the schema answers, whichever type is its first.
func TestExampleIsAnswered(t *testing.T) {
	p := serve(t, "--demo")
	store, err := storage.New(drivertest.NewModel(nil, storage.CollectionsOf(model.Types)), model.Types)
	if err != nil {
		t.Fatal(err)
	}
	schema := resolvers.NewSchema(store).Schema()
	if options, err := (&site{schema: schema}).playground(model.Types); options.IsDemo == nil || err != nil {
		t.Errorf("the schema of the demo has other queries: %v", err)
	}
	lacking := *schema
	query := *schema.Query
	query.Fields = slices.DeleteFunc(slices.Clone(query.Fields), func(f *ast.FieldDefinition) bool { return f.Name == "project" })
	lacking.Query = &query
	for i, typ := range model.Types {
		t.Run(typ.Name, func(t *testing.T) {
			options, err := (&site{schema: &lacking}).playground(model.Types[i:])
			if err != nil || options.Example == nil || options.IsDemo != nil {
				t.Fatalf("%+v, %v", options, err)
			}
			tab := options.Example
			body, err := json.Marshal(map[string]any{"query": tab.Query, "variables": tab.Variables})
			if err != nil {
				t.Fatal(err)
			}
			got := p.do(t, "POST", "/graphql", string(body), "Content-Type", "application/json").body
			if demoHas := typ.Name != "Reading"; strings.Contains(got, `"errors"`) || demoHas != strings.Contains(got, `"recordedAt"`) {
				t.Errorf("%s\n%s", tab.Query, got)
			}
			if _, errs := gqlparser.LoadQueryWithRules(schema, tab.Query, rules.NewDefaultRules()); errs != nil {
				t.Error(errs)
			}
		})
	}
}

// The ready queries are shown where they find something, which is looked for when
// the page is asked for.
func TestReadyQueriesAreForTheDemo(t *testing.T) {
	const marked = `name="asof-example" content=""`
	if page := serve(t, "--demo").do(t, "GET", "/", "").body; !strings.Contains(page, marked) {
		t.Errorf("on the demo: %s", page)
	}
	p := serve(t)
	if got := p.query(t, `mutation {createProject(input: {key: "lanternfish", data: {name: "Mine", description: "Mine", stars: 1}}) {__typename}}`).body; strings.Contains(got, `"errors"`) {
		t.Fatal(got)
	}
	page := p.do(t, "GET", "/", "")
	if !strings.Contains(page.body, "query FirstLook(") {
		t.Errorf("on another catalogue: %s", page.body)
	}
}

// It is the text of an attribute of the page.
func TestExampleInThePage(t *testing.T) {
	tab := &web.Tab{Query: "# A \"quote\": & <b>\n{ __typename }", Variables: json.RawMessage(`{"asOf": null}`)}
	answer := httptest.NewRecorder()
	web.Handler(web.Options{Example: tab}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	const want = `name="asof-example" content="{&#34;query&#34;:&#34;# A \&#34;quote\&#34;: \u0026 \u003cb\u003e\n{ __typename }&#34;,&#34;variables&#34;:{&#34;asOf&#34;:null}}"`
	if got := answer.Body.String(); !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
}
