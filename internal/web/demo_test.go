package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/internal/web/webtest"
)

// demo starts the program with the demo's data in a store of its own and
// returns its address. The program ends with the test.
func demo(t *testing.T, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stdout, greeting := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	m := app.Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: greeting, Stderr: &stderr, Now: time.Now}
	go func() {
		status := m.Run(ctx, append([]string{
			"serve", "--demo", "--addr=127.0.0.1:0", "--store=sqlite:" + filepath.Join(t.TempDir(), "demo.db"),
		}, flags...))
		_ = greeting.Close()
		ended <- status
	}()
	t.Cleanup(func() {
		cancel()
		if status := <-ended; status != 0 {
			t.Errorf("the program ended with status %d:\n%s", status, &stderr)
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(lines.Text()); url != "" {
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return url
		}
	}
	t.Fatal("the program named no address; its log follows")
	return ""
}

// post runs a ready query.
func post(t *testing.T, url string, tab web.Tab) gjson.Result {
	t.Helper()
	request, err := json.Marshal(map[string]any{"query": tab.Query, "variables": tab.Variables})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/graphql", bytes.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Actor", "visitor")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || gjson.GetBytes(text, "errors").Exists() {
		t.Fatalf("status %d: %s", answer.StatusCode, text)
	}
	return gjson.ParseBytes(text)
}

// onDemo says what each ready query shows on the demo's data: paths in the
// answer, and what is found there.
var onDemo = map[string]map[string]string{
	"01-now": {
		"data.projects.nodes.#": "3", "data.projects.nodes.0.key": "hearth", "data.projects.nodes.0.tags.0.name": "Smart home",
	},
	"02-as-of": {
		"data.before.tags.#": "2", "data.during.tags.#": "0", "data.during.description": "DO NOT USE!!! steals your pictures",
		"data.now.id": "Project:lanternfish", "data.now.name": "Lanternfish Photos",
	},
	"03-by-version": {
		"data.then.versionInfo.number": "1", "data.then.versionInfo.author.id": "mira",
		"data.then.currentRelease.tag": "v1.8.0", "data.now.currentRelease.tag": "v3.1.0",
		"data.again.id": "Project:lanternfish@11", "data.again.currentRelease.tag": "v1.9.0",
		"data.gone.versions.nodes.0.id": "Tag:bookmarks@2", "data.gone.versions.nodes.0.versionInfo.operation": "DELETE",
	},
	"04-who-changed-what": {
		"data.project.changelog.nodes.0.path": "/name", "data.project.changelog.nodes.0.changedBy.id": "mira",
		"data.project.changelog.nodes.0.oldValue": "Lanternfish", "data.project.changelog.nodes.0.newValue": "Lanternfish Photos",
	},
	"05-blame": {
		`data.project.blame.#(path=="/archived").changedBy.id`: "hana",
		`data.project.blame.#(path=="/name").version`:          "1",
	},
	"06-diff": {
		`data.project.diff.changes.#(path=="/currentRelease/tag").newValue`: "v3.0.0",
		`data.project.diff.changes.#(path=="/currentRelease/tag").op`:       "REPLACE",
		`data.project.diff.jsonPatch.#(path=="/currentRelease/tag").op`:     "replace",
	},
	"07-what-changed": {
		"data.changelog.nodes.0.changedBy.id": "mira", "data.changelog.nodes.0.documentKey": "lanternfish",
		"data.changelog.nodes.0.message": "We list what the current release has",
	},
	"08-filter-and-page": {
		"data.projects.edges.0.node.key": "hearth", "data.projects.pageInfo.hasNextPage": "true",
		"data.projects.edges.0.node.tags.0.name": "Home automation",
	},
	"09-compare-and-swap": {
		"data.updateTag.changed": "true", "data.updateTag.tag.version": "3", "data.updateTag.changes.0.path": "/description",
	},
	"10-conflict-and-merge": {
		"data.overlapping.actualVersion": "2", "data.overlapping.overlappingPaths.0": "/relatedTags", "data.overlapping.mergeable": "false",
		"data.separate.merged": "true", "data.separate.tag.version": "3", "data.separate.tag.relatedTagKeys.0": "reading",
		"data.separate.tag.description": "Writing things down, and finding them again.",
	},
	"11-restore": {
		"data.created.tag.id": "Tag:weather", "data.deleted.version": "2", "data.whole.version": "3", "data.whole.tag.name": "Weather",
		"data.part.changes.#": "2", `data.part.changes.#(path=="/name").newValue`: "Later Alligator",
	},
}

func TestTabsOnDemo(t *testing.T) {
	for _, executor := range executors() {
		t.Run(executor, func(t *testing.T) { tabsOnDemo(t, demo(t, "--executor="+executor)) })
	}
}

func executors() []string { return []string{"plan", "gqlgen"} }

func tabsOnDemo(t *testing.T, url string) {
	t.Helper()
	tabs, err := web.Tabs()
	if err != nil {
		t.Fatal(err)
	}
	for _, tab := range tabs {
		t.Run(tab.Name, func(t *testing.T) {
			answer := post(t, url, tab)
			if _, err := time.Parse(time.RFC3339, answer.Get("extensions.asOf").String()); err != nil {
				t.Errorf("extensions.asOf: %v", err)
			}
			want := onDemo[tab.Name]
			if len(want) == 0 {
				t.Error("nothing is expected of this query: say what in onDemo")
			}
			for path, value := range want {
				if got := answer.Get(path).String(); got != value {
					t.Errorf("%s is %q, want %q", path, got, value)
				}
			}
			if t.Failed() {
				t.Logf("%s", answer)
			}
			if tab.Name == "09-compare-and-swap" {
				if got := post(t, url, tab).Get("data.updateTag.actualVersion").Int(); got != 3 {
					t.Errorf("again: the conflict's actual version is %d, want 3", got)
				}
			}
		})
	}
}

// TestDemoInBrowser is what a first-time visitor of the demo does: look around,
// then run every tab.
func TestDemoInBrowser(t *testing.T) {
	for _, executor := range executors() {
		t.Run(executor, func(t *testing.T) { demoInBrowser(t, demo(t, "--executor="+executor)) })
	}
}

func demoInBrowser(t *testing.T, url string) {
	t.Helper()
	b := checkPlayground(t, url, expect{
		Answer:      `"key": "hearth"`,
		Description: "One request reads one instant",
		Prefix:      "projec",
		Completion:  "projectHistory",
	})
	tabs, err := web.Tabs()
	if err != nil {
		t.Fatal(err)
	}
	// What the variables editor complains of at any time, while tabs are changed.
	b.Run(t, `globalThis.wrongVariables = [];
		globalThis.__MONACO.editor.onDidChangeMarkers(() => {
			const markers = globalThis.__MONACO.editor.getModelMarkers({});
			wrongVariables.push(...markers.filter((m) => m.resource.path.endsWith("variables.json")).map((m) => m.message));
		})`)
	for i, tab := range tabs {
		b.openTab(t, i)
		b.WaitFor(t, "no instant before there is an answer", `!document.querySelector(".asof-footer time") || `+text("response.json")+` !== ""`)
		b.WaitFor(t, "the editors to be content with "+tab.Name, complaints+`.length === 0`)
		answer := b.runQuery(t)
		if strings.Contains(answer, `"errors"`) || !strings.Contains(answer, `"data"`) {
			t.Errorf("%s: %s", tab.Name, answer)
		}
		if dir := os.Getenv(envScreenshots); dir != "" {
			b.Screenshot(t, filepath.Join(dir, "demo-"+path.Base(t.Name())+"-"+tab.Name+".png"))
		}
	}
	if wrong := webtest.Eval[[]string](t, b.Browser, `wrongVariables`); len(wrong) > 0 {
		t.Errorf("the variables of one tab are checked against those of another: %q", wrong)
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}
