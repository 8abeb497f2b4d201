package web_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/internal/web/webtest"
)

func playground(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", web.Handler(web.Options{}))
	mux.Handle("/graphql", fakeGraphQL(t, "testdata/schema.graphqls"))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestPlaygroundInBrowser(t *testing.T) {
	checkPlayground(t, playground(t).URL, expect{
		Answer:      "Lanternfish",
		Description: "now or at an instant; null if it did not exist",
		Prefix:      "proj",
		Completion:  "projects",
	})
}

// Whoever comes back finds the tabs as they were left; the ready queries are in
// a pane, from which one that was closed can be had again.
func TestReturningVisitor(t *testing.T) {
	b := newVisitor(t)
	url := playground(t).URL
	b.ready(t, url)
	tabs := `[...document.querySelectorAll(".graphiql-tab-button")].map((tab) => tab.title)`
	first := webtest.Eval[[]string](t, b.Browser, tabs)
	if got := webtest.Eval[float64](t, b.Browser, `((row) => row.scrollWidth - row.clientWidth)(document.querySelector(".graphiql-tabs"))`); got > 0 {
		t.Errorf("the row of tabs is %v pixels too narrow for them", got)
	}
	if got := webtest.Eval[float64](t, b.Browser, `((input) => {
		const text = document.createElement("canvas").getContext("2d");
		const style = getComputedStyle(input);
		text.font = `+"`${style.fontWeight} ${style.fontSize} ${style.fontFamily}`"+`;
		const room = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
		return text.measureText(input.placeholder).width - room;
	})(document.querySelector(".graphiql-doc-explorer-search input"))`); got > 0 {
		t.Errorf("the hint in the field of the search is cut off, by %v pixels", got)
	}

	b.Click(t, ".graphiql-tab-add")
	b.WaitFor(t, "an empty tab", text("operation.graphql")+` === ""`)
	b.Click(t, ".graphiql-query-editor .view-lines")
	b.Type(t, "query Mine")
	b.WaitFor(t, "the state to be stored", `localStorage.getItem("graphiql:tabState").includes("query Mine")`)
	b.Run(t, `document.querySelector("#graphiql-session-tab-0 + .graphiql-tab-close").click()`) // shown on hover
	b.WaitFor(t, "the first tab to be gone", `!localStorage.getItem("graphiql:tabState").includes("query Now")`)

	b.ready(t, url)
	want := append(slices.Clone(first[1:]), "Mine")
	if got := webtest.Eval[[]string](t, b.Browser, tabs); !slices.Equal(got, want) {
		t.Errorf("the tabs are %q, want %q", got, want)
	}
	if got := webtest.Eval[string](t, b.Browser, text("operation.graphql")); !strings.Contains(got, "query Mine") {
		t.Errorf("the open tab has %q", got)
	}

	b.Click(t, `button[aria-label="Show Examples"]`)
	b.Click(t, `.asof-examples li:nth-child(2) button`) // has a tab
	b.WaitFor(t, "the tab "+want[0], text("operation.graphql")+`.includes("query `+want[0]+`(")`)
	b.Click(t, `.asof-examples li:nth-child(1) button`) // was closed
	b.WaitFor(t, "the first query", text("operation.graphql")+`.includes("query Now(")`)
	b.WaitFor(t, "its variables", text("variables.json")+`.includes("first")`)
	b.WaitFor(t, "its headers", text("request-headers.json")+`.includes("X-Actor")`)
	b.WaitFor(t, "its tab, at the end", tabs+`.at(-1) === "Now"`)
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}

// An example of the server's takes the place of the ready queries.
func TestExampleInBrowser(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/", web.Handler(web.Options{Example: &web.Tab{
		Query:     "# Mine: a \"quoted\" & <b>bold</b> word.\nquery Mine { __typename }\n",
		Variables: json.RawMessage(`{"asOf": null}`),
	}}))
	mux.Handle("/graphql", fakeGraphQL(t, "testdata/schema.graphqls"))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b := newVisitor(t)
	b.ready(t, server.URL)
	tabs := `[...document.querySelectorAll(".graphiql-tab-button")].map((tab) => tab.title)`
	if got := webtest.Eval[[]string](t, b.Browser, tabs); !slices.Equal(got, []string{"Mine"}) {
		t.Errorf("the tabs are %q", got)
	}
	if got := webtest.Eval[string](t, b.Browser, text("operation.graphql")); !strings.Contains(got, `# Mine: a "quoted" & <b>bold</b> word.`) {
		t.Errorf("the query is %q", got)
	}
	b.WaitFor(t, "its variables", text("variables.json")+`.includes("asOf")`)
	b.Click(t, `button[aria-label="Show Examples"]`)
	b.WaitFor(t, "the one example", `document.querySelectorAll(".asof-examples li").length === 1`)
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}

// Where the server does not tell its schema the page says so at the place of the
// documentation, does not ask for it, and sends queries as ever.
func TestNoIntrospectionInBrowser(t *testing.T) {
	fake := fakeGraphQL(t, "testdata/schema.graphqls")
	asked := make(chan string, 100)
	mux := http.NewServeMux()
	mux.Handle("/", web.Handler(web.Options{NoIntrospection: true}))
	mux.HandleFunc("/graphql", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked <- string(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		fake.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b := newVisitor(t)
	b.Open(t, server.URL)
	b.WaitFor(t, "the query editor", `document.querySelector(".graphiql-query-editor .view-line span")`)
	b.WaitFor(t, "the reason", `document.querySelector(".asof-no-schema-pane")?.innerText.includes("--no-introspection")`)
	if got := webtest.Eval[bool](t, b.Browser, `document.querySelector('button[aria-label^="Re-fetch"]')?.checkVisibility() ?? false`); got {
		t.Error("the schema can be asked for again")
	}
	if answer := b.runQuery(t); !strings.Contains(answer, "Lanternfish") || strings.Contains(answer, `"errors"`) {
		t.Errorf("the first tab's answer: %s", answer)
	}
	b.Click(t, `button[aria-label="Show Examples"]`)
	b.WaitFor(t, "the examples", `document.querySelectorAll(".asof-examples li").length > 1`)
	b.Click(t, `button[aria-label="Show Documentation Explorer"]`)
	b.WaitFor(t, "the reason again", `document.querySelector(".asof-no-schema-pane")`)
	close(asked)
	for body := range asked {
		if strings.Contains(body, "__schema") {
			t.Errorf("the schema was asked for: %.100s", body)
		}
	}
	if complaints := webtest.Eval[[]string](t, b.Browser, complaints); len(complaints) > 0 {
		t.Errorf("the editors underline: %q", complaints)
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}

const envScreenshots = "ASOF_SCREENSHOTS"

// TestScreenshots makes pictures for whoever changes how the Playground looks:
// ASOF_SCREENSHOTS names the directory that they go to.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv(envScreenshots)
	if dir == "" {
		t.Skip(envScreenshots + " names no directory for the pictures")
	}
	for _, scheme := range []string{"light", "dark"} {
		b := newVisitor(t)
		b.Scheme(t, scheme)
		b.ready(t, playground(t).URL)
		b.Screenshot(t, filepath.Join(dir, scheme+"-first.png"))
		b.runQuery(t)
		b.Click(t, `button[aria-label="Show Examples"]`)
		b.WaitFor(t, "the examples", `document.querySelector(".asof-examples button")`)
		b.Screenshot(t, filepath.Join(dir, scheme+"-examples.png"))
	}
}
