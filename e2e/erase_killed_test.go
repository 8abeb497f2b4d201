package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// What a server was killed while it erased, and then while it went on with that, is erased by the next one,
// and is in no file after that.
func TestErasingKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		eraseKilled(t, "sqlite:"+filepath.Join(dir, "erase.db"), 3000)
		files, err := os.ReadDir(dir)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(raw), "secret") {
				t.Errorf("%s still holds what was erased", f.Name())
			}
		}
	})
	t.Run("mongodb", func(t *testing.T) {
		uri, _ := mongotest.NewServer(t).Database(t)
		eraseKilled(t, uri, 600)
	})
}

func eraseKilled(t *testing.T, store string, versions int) {
	var history strings.Builder
	for n := range versions {
		fmt.Fprintf(&history, `{"collection":"licenses","id":"l","at":"2020-01-01T%02d:%02d:%02dZ","by":"ann","op":"put","data":{"identifier":"L","name":"secret-%d"}}`+"\n", n/3600, n/60%60, n%60, n)
	}
	feed(t, store, history.String())
	tokens := filepath.Join(t.TempDir(), "tokens")
	const job = `{"name":"job","roles":["privacy"],"created":"2026-01-02T03:04:05Z","sha256":"8d84df5a36cb5ab701ddbc35c95afab5547635e6e5fcd82bf993f5eb49a0bcaf"}`
	if err := os.WriteFile(tokens, []byte(job+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(s *server, query string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/graphql", strings.NewReader(fmt.Sprintf(`{"query":%q}`, query)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer asof_of-the-scripts")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "" // it was killed
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	until := func(s *server, query, says string) {
		t.Helper()
		text := ""
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if text = ask(s, query); strings.Contains(text, says) {
				return
			}
		}
		t.Fatalf("%s: %s", query, text)
	}
	started := func() *server { return startServer(t, program, store, "--auth=token", "--tokens="+tokens) }
	version := func(n int) string { return fmt.Sprintf(`{ license(key: "l", version: %d) { name } }`, n) }
	asked, answered := started(), make(chan string, 1)
	go func() {
		answered <- ask(asked, fmt.Sprintf(`mutation { eraseLicense(input: { key: "l", expectedVersion: %d, reason: "r", paths: ["/name"] }) { __typename } }`, versions))
	}()
	until(asked, `{ license(key: "l") { version } }`, fmt.Sprintf(`"version":%d}`, versions+1))
	asked.kill(t)
	t.Logf("who asked was told %q", <-answered)
	goesOn := started()
	until(goesOn, version(1), `"name":null`)
	t.Logf("where it is killed again, the last one has %s", ask(goesOn, version(versions)))
	goesOn.kill(t)
	ends := started()
	for _, n := range []int{versions, versions / 2, 1} {
		until(ends, version(n), `"name":null`)
	}
	if err := ends.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ends.ended
	run(t, program, "prune", "--store", store)
	run(t, program, "check", "--store", store)
	if all := run(t, program, "export", "--store", store); strings.Contains(all, "secret") || strings.Count(all, "\n") < versions {
		t.Error("an export holds what was erased, or not all versions")
	}
}
