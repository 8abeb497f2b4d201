package web_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/asof/asof/internal/app"
)

// Of a server that wants a token the page shows why it has no schema; with the token in the headers it
// gets it, and what is written is signed by whom the token was made for.
func TestTokenInBrowser(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	var token, stderr bytes.Buffer
	m := app.Main{Stdin: strings.NewReader(""), Stdout: &token, Stderr: &stderr, Now: time.Now}
	if status := m.Run(t.Context(), []string{"token", "add", "ada", "--tokens", tokens}); status != 0 {
		t.Fatalf("token add: status %d: %s", status, &stderr)
	}
	url := demo(t, "--auth=token", "--tokens="+tokens)
	b := newVisitor(t)
	set := func(editor, value string) {
		b.Run(t, fmt.Sprintf(`globalThis.__MONACO.editor.getModels().find((m) => m.uri.path.endsWith(%q)).setValue(%q)`, editor, value))
	}
	b.Open(t, url)
	b.WaitFor(t, "the query editor", `document.querySelector(".graphiql-query-editor .view-line span")`)
	b.WaitFor(t, "the refusal of the schema", text("response.json")+`.includes("UNAUTHENTICATED")`)
	if answer := b.runQuery(t); gjson.Get(answer, "errors.0.extensions.code").String() != "UNAUTHENTICATED" {
		t.Errorf("without a token: %s", answer)
	}
	set("request-headers.json", fmt.Sprintf(`{"Authorization": "Bearer %s"}`, strings.TrimSpace(token.String())))
	b.Click(t, `button[aria-label^="Re-fetch"]`)
	b.WaitFor(t, "the schema", `document.querySelector(".graphiql-doc-explorer a")`)
	if answer := b.runQuery(t); gjson.Get(answer, "data.projects.nodes.#").Int() == 0 {
		t.Errorf("with the token: %s", answer)
	}
	set("operation.graphql", `mutation Add { createTag(input: { key: "new", data: { name: "New", description: "Fresh" } }) { ... on CreateTagSuccess { tag { versionInfo { author { id } } } } } }`)
	if answer := b.runQuery(t); gjson.Get(answer, "data.createTag.tag.versionInfo.author.id").String() != "ada" {
		t.Errorf("who wrote: %s", answer)
	}
	for _, problem := range b.Problems() {
		if !strings.Contains(problem, "a status of 401") {
			t.Errorf("the page complains: %s", problem)
		}
	}
}
