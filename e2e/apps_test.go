package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/internal/web/webtest"
)

// apps builds the apps in clients, with what the program prints for their caches.
func apps(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("clients/node_modules/.package-lock.json"); err != nil {
		const message = "the npm packages of the clients are not installed; run npm ci in e2e/clients"
		if os.Getenv("CI") != "" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	write := func(name string, text []byte) {
		path := filepath.Join("clients/generated", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // what is generated is nobody's secret
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
	}
	schema, err := os.ReadFile("../graph/versioned.graphqls")
	if err != nil {
		t.Fatal(err)
	}
	write("schema.graphql", schema)
	// Relay's compiler adds what it writes anew to a list that is there.
	write("relay-documents.json", []byte("{}"))
	if err := os.RemoveAll("clients/src/relay/__generated__"); err != nil {
		t.Fatal(err)
	}
	for _, client := range []string{"apollo", "urql", "relay"} {
		write(client+".ts", []byte(run(t, program, "client-config", client)))
	}
	build := exec.Command("npm", "run", "build")
	build.Dir = "clients"
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// Apps with the usual clients work with the server, as their pages in docs/clients.md say.
func TestApps(t *testing.T) {
	apps(t)
	for app, trusted := range map[string][]string{ // the documents that the server executes; none: all
		"apollo": nil, "urql": nil,
		"relay": {"generated/relay-documents.json", "src/relay/others.json"},
		"typed": {"generated/gql/persisted-documents.json"},
	} {
		t.Run(app, func(t *testing.T) {
			flags := []string{"--demo"}
			if trusted != nil {
				documents := map[string]string{}
				for _, file := range trusted {
					text, err := os.ReadFile(filepath.Join("clients", file))
					if err != nil {
						t.Fatal(err)
					}
					var more map[string]string
					if err := json.Unmarshal(text, &more); err != nil {
						t.Fatal(err)
					}
					maps.Copy(documents, more)
				}
				text, err := json.Marshal(documents)
				if err != nil {
					t.Fatal(err)
				}
				list := filepath.Join(t.TempDir(), "documents.json")
				if err := os.WriteFile(list, text, 0o600); err != nil {
					t.Fatal(err)
				}
				flags = append(flags, "--trusted-documents", list)
			}
			demo := startServer(t, program, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), flags...)
			said, err := exec.Command("node", "clients/dist/"+app+".js", demo.url).CombinedOutput()
			if err != nil || !strings.HasSuffix(string(said), "\npassed\n") {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
	t.Run("page", page)
}

// In a browser: somebody edits, loses, sees what others changed, keeps that and saves the rest, and
// wins at last.
func page(t *testing.T) {
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page.js" {
			http.ServeFile(w, r, "clients/dist/page.js")
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><body><script type="module" src="/page.js"></script>`))
	}))
	t.Cleanup(pages.Close)
	demo := startServer(t, program, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), "--demo", "--cors-origin", pages.URL)
	demo.ask(t, `mutation {createTag(input: {key: "page", data: {name: "A", description: "a"}}) {__typename}}`, nil)
	if os.Getenv("CI") != "" {
		t.Setenv("ASOF_REQUIRE_BROWSER", "1")
	}
	b := webtest.New(t)
	b.Open(t, pages.URL+"/?"+url.Values{"api": {demo.url}, "key": {"page"}}.Encode())
	shows := func(text string) {
		t.Helper()
		b.WaitFor(t, text, `document.querySelector("output")?.textContent === "`+text+`"`)
	}
	enter := func(field, text string) {
		t.Helper()
		b.Run(t, `document.querySelector("#`+field+`").select(); document.querySelector("#`+field+`").focus()`)
		b.Type(t, text)
	}
	shows("A: a (version 1)")
	demo.ask(t, `mutation {updateTag(input: {key: "page", expectedVersion: 1, patch: {name: "B"}}) {__typename}}`, nil)
	enter("name", "C")
	enter("description", "c")
	b.Click(t, "#save")
	b.WaitFor(t, "the conflict", `document.querySelector("#conflict li")?.textContent === "/name is now “B”, by anonymous"`)
	shows("B: a (version 2)")
	if path := os.Getenv("ASOF_TEST_SCREENSHOT"); path != "" {
		b.Screenshot(t, path)
	}
	b.Click(t, "#merge")
	shows("B: c (version 3)")
	b.WaitFor(t, "the end of the conflict", `document.querySelector("#conflict").hidden && document.querySelector("#name").value === "B"`)
	enter("name", "C")
	b.Click(t, "#save")
	shows("C: c (version 4)")
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}
