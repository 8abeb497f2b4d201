package app

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/drivertest"
)

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
			if strings.Contains(got, `"errors"`) || !strings.Contains(got, `"recordedAt"`) {
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
	needsPlayground(t)
	const marked = `name="asof-example" content=""`
	if page := serve(t, "--demo").do(t, "GET", "/", "").body; !strings.Contains(page, marked) {
		t.Errorf("on the demo: %s", page)
	}
	p := serve(t)
	if got := p.query(t, `mutation {createProject(input: {key: "lanternfish", data: {name: "Mine", description: "Mine", stars: 1}}) {__typename}}`).body; strings.Contains(got, `"errors"`) {
		t.Fatal(got)
	}
	page := p.do(t, "GET", "/", "")
	if !strings.Contains(page.body, "query FirstLook(") || page.header.Get("Etag") == "" {
		t.Errorf("on another catalogue: %s", page.body)
	}
}

// It is the text of an attribute of the page.
func TestExampleInThePage(t *testing.T) {
	needsPlayground(t)
	tab := &web.Tab{Query: "# A \"quote\": & <b>\n{ __typename }", Variables: json.RawMessage(`{"asOf": null}`)}
	answer := httptest.NewRecorder()
	web.Handler(web.Options{Example: tab}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	const want = `name="asof-example" content="{&#34;query&#34;:&#34;# A \&#34;quote\&#34;: \u0026 \u003cb\u003e\n{ __typename }&#34;,&#34;variables&#34;:{&#34;asOf&#34;:null}}"`
	if got := answer.Body.String(); !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
}
