package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	t.Run("live", live)
}

// browserPages serves a page for each script of the apps, at /SCRIPT.html.
func browserPages(t *testing.T) (origin string) {
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, isPage := strings.CutSuffix(r.URL.Path, ".html")
		if !isPage {
			http.ServeFile(w, r, "clients/dist/"+filepath.Base(r.URL.Path))
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><body><script type="module" src="` + name + `.js"></script>`))
	}))
	t.Cleanup(pages.Close)
	if os.Getenv("CI") != "" {
		t.Setenv("ASOF_REQUIRE_BROWSER", "1")
	}
	return pages.URL
}

// screenshot keeps what a page shows, where somebody wants to look at it.
func screenshot(t *testing.T, b *webtest.Browser) {
	t.Helper()
	if dir := os.Getenv("ASOF_TEST_SCREENSHOTS"); dir != "" {
		b.Screenshot(t, filepath.Join(dir, filepath.Base(t.Name())+".png"))
	}
}

// In a browser: somebody edits, loses, sees what others changed, keeps that and saves the rest, and
// wins at last.
func page(t *testing.T) {
	origin := browserPages(t)
	demo := startServer(t, program, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), "--demo", "--cors-origin", origin)
	demo.ask(t, `mutation {createTag(input: {key: "page", data: {name: "A", description: "a"}}) {__typename}}`, nil)
	b := webtest.New(t)
	b.Open(t, origin+"/page.html?"+url.Values{"api": {demo.url}, "key": {"page"}}.Encode())
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
	screenshot(t, b)
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

// In a browser: a page goes on behind the last event that it has shown when its server was killed,
// with everything that was written before and after, once.
func live(t *testing.T) {
	origin, store := browserPages(t), "sqlite:"+filepath.Join(t.TempDir(), "live.db")
	start := func(addr string) (*server, *exec.Cmd) {
		t.Helper()
		cmd := exec.Command(program, "serve", "--addr", addr, "--store", store, "--cors-origin", origin)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
		lines, s := bufio.NewScanner(out), &server{}
		for s.url == "" && lines.Scan() {
			s.url = address.FindString(lines.Text())
		}
		if s.url == "" {
			t.Fatal("the server did not start")
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
		return s, cmd
	}
	s, cmd := start("127.0.0.1:0")
	var want []string
	write := func(kind, shown, mutation string) {
		t.Helper()
		if a := s.ask(t, "mutation {"+mutation+" {__typename}}", nil); a.Errors != nil {
			t.Fatal(a.Errors)
		}
		want = append(want, kind+" live: "+shown)
	}
	version := 0
	rename := func(times int) {
		t.Helper()
		for range times {
			name := fmt.Sprintf("N%d", version+1)
			write("CHANGED", name, fmt.Sprintf(`updateTag(input: {key: "live", expectedVersion: %d, patch: {name: %q}})`, version, name))
			version++
		}
	}
	b := webtest.New(t)
	b.Open(t, origin+"/live.html?"+url.Values{"api": {s.url}}.Encode())
	b.WaitFor(t, "the connection", `document.querySelector("output")?.textContent === "connected"`)
	write("ENTERED", "N1", `createTag(input: {key: "live", data: {name: "N1", description: ""}})`)
	version = 1
	rename(3)
	b.WaitFor(t, "the first events", `document.querySelectorAll("li").length > 1`)
	rename(3)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); !wasKilled(err) {
		t.Fatal(err)
	}
	b.WaitFor(t, "the end of the connection", `document.querySelector("output").textContent === "connecting again"`)
	s, _ = start(strings.TrimPrefix(s.url, "http://"))
	rename(3)
	write("LEFT", "Tag:live", fmt.Sprintf(`deleteTag(input: {key: "live", expectedVersion: %d})`, version))
	b.WaitFor(t, "the last event", `document.querySelector("li:last-child").textContent.startsWith("LEFT")`)
	screenshot(t, b)
	got := webtest.Eval[[]string](t, b, `[...document.querySelectorAll("li")].map((li) => li.textContent)`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
