package web_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/asof/asof/internal/web/webtest"
)

// maxPageBytes is what the Playground's own files may weigh on the wire, all of
// them together: page, scripts, workers, styles and font, as gzip.
const maxPageBytes = 1_500_000

// visitor is a tab that shows the Playground.
type visitor struct{ *webtest.Browser }

func newVisitor(t *testing.T) visitor { return visitor{webtest.New(t)} }

// expect says what the server shows that a test drives.
type expect struct {
	Answer      string // part of the answer to the first tab's query
	Description string // of a field of Query, shown when the documentation of Query is open
	Prefix      string // what is typed inside a query, for instance "proj"
	Completion  string // what the editor then proposes, for instance "projects"
}

// text is a JavaScript expression for the text of one of GraphiQL's editors:
// operation.graphql, variables.json, request-headers.json or response.json.
func text(name string) string {
	return fmt.Sprintf(`(globalThis.__MONACO?.editor.getModels().find((m) => m.uri.path.endsWith(%q))?.getValue() ?? "")`, name)
}

// ready opens the Playground at baseURL and waits for its first tab and the schema.
func (b visitor) ready(t *testing.T, baseURL string) {
	t.Helper()
	b.Open(t, baseURL)
	b.WaitFor(t, "the query editor", `document.querySelector(".graphiql-query-editor .view-line span")`)
	b.WaitFor(t, "the schema", `document.querySelector(".graphiql-doc-explorer a")`)
}

// complaints is a JavaScript expression for what the editors underline in red.
const complaints = `globalThis.__MONACO.editor.getModelMarkers({}).filter((m) => m.severity === 8).map((m) => m.message)`

// openTab opens the tab with this index, from 0.
func (b visitor) openTab(t *testing.T, index int) {
	t.Helper()
	b.Click(t, fmt.Sprintf("#graphiql-session-tab-%d", index))
	b.WaitFor(t, "the tab's query", fmt.Sprintf(`((name) => %s.includes(" " + name))(
		document.querySelector("#graphiql-session-tab-%d").title)`, text("operation.graphql"), index))
}

// runQuery presses the run button and returns the answer, as shown.
func (b visitor) runQuery(t *testing.T) string {
	t.Helper()
	b.Run(t, `globalThis.__MONACO.editor.getModels().find((m) => m.uri.path.endsWith("response.json")).setValue("")`)
	b.Click(t, ".graphiql-execute-button")
	b.WaitFor(t, "the answer", text("response.json")+`.trim().endsWith("}")`)
	return webtest.Eval[string](t, b.Browser, text("response.json"))
}

// checkPlayground walks through the Playground at baseURL as a first-time
// visitor: run the first query, read the documentation, have a field completed.
// It fails the test if that does not work, if the page complains, if any other
// host is asked, or if the page is too heavy.
func checkPlayground(t *testing.T, baseURL string, want expect) visitor {
	t.Helper()
	base, err := url.Parse(baseURL)
	if err != nil {
		t.Fatal(err)
	}
	b := newVisitor(t)
	b.ready(t, baseURL)
	if got := webtest.Eval[string](t, b.Browser, `document.title`); got != "asof" {
		t.Errorf("the title is %q, want asof", got)
	}

	answer := b.runQuery(t)
	if !strings.Contains(answer, want.Answer) || strings.Contains(answer, `"errors"`) {
		t.Errorf("the first tab's answer lacks %q:\n%s", want.Answer, answer)
	}
	// The line below is drawn some time after the answer is in its editor.
	b.WaitFor(t, "the answer's instant", fmt.Sprintf(
		`((shown) => shown && %s.includes('"asOf": "' + shown + '"'))(document.querySelector(".asof-footer time")?.textContent)`, text("response.json")))

	b.Click(t, `.graphiql-doc-explorer a.graphiql-doc-explorer-type-name`)
	b.WaitFor(t, "the description of a field", fmt.Sprintf(
		`document.querySelector(".graphiql-doc-explorer").innerText.includes(%q)`, want.Description))

	// The schema's worker answers completions: this shows that workers run.
	b.Click(t, ".graphiql-tab-add")
	b.WaitFor(t, "an empty tab", text("operation.graphql")+` === ""`)
	b.Click(t, ".graphiql-query-editor .view-lines")
	b.Type(t, "{ "+want.Prefix)
	b.WaitFor(t, "the completion "+want.Completion, fmt.Sprintf(
		`[...document.querySelectorAll(".suggest-widget .monaco-list-row")].some((row) => row.innerText.trim().startsWith(%q))`,
		want.Completion))

	for _, problem := range b.Problems() {
		t.Errorf("the page complains: %s", problem)
	}
	b.checkRequests(t, base.Host)
	return b
}

func (b visitor) checkRequests(t *testing.T, host string) {
	t.Helper()
	var page, api int64
	for _, r := range b.Requests() {
		if r.Host != host {
			t.Errorf("another host was asked: %s %s%s", r.Method, r.Host, r.Path)
			continue
		}
		if r.Status >= 400 {
			t.Errorf("%s %s: status %d", r.Method, r.Path, r.Status)
		}
		t.Logf("%8d bytes %-4s %s %s", r.Bytes, r.Encoding, r.Method, r.Path)
		if r.Method == "POST" {
			api += r.Bytes
			continue
		}
		page += r.Bytes
		if r.Encoding != "gzip" && r.Path != "/" { // the page has 800 bytes
			t.Errorf("%s is not compressed", r.Path)
		}
	}
	t.Logf("page %d bytes, API %d bytes", page, api)
	if page == 0 || page >= maxPageBytes {
		t.Errorf("the page weighs %d bytes, want less than %d", page, maxPageBytes)
	}
}
