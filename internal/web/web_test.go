package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/web"
)

// get asks h for a path, with pairs of header names and values.
func get(t *testing.T, h http.Handler, method, target string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unzip(t *testing.T, zipped []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

var assetPath = regexp.MustCompile(`(?:src|href)="\./(assets/[^"]+)"`)

// assets are the files that the page names.
func assets(t *testing.T, h http.Handler) []string {
	t.Helper()
	var paths []string
	for _, m := range assetPath.FindAllSubmatch(body(t, get(t, h, "GET", "/")), -1) {
		paths = append(paths, "/"+string(m[1]))
	}
	if len(paths) < 3 {
		t.Fatalf("the page names the files %q: want script, style and icon", paths)
	}
	return paths
}

func TestHandlerServesPageAndAssets(t *testing.T) {
	h := web.Handler(web.Options{})
	types := map[string]string{
		".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
		"": "text/html; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	}
	for _, target := range append(assets(t, h), "/", "/THIRD-PARTY-LICENSES.txt") {
		t.Run(target, func(t *testing.T) {
			r := get(t, h, "GET", target, "Accept-Encoding", "gzip, deflate, br")
			content := body(t, r)
			if r.StatusCode != http.StatusOK || r.Header.Get("Content-Length") != strconv.Itoa(len(content)) {
				t.Fatalf("status %d, %s of %d bytes", r.StatusCode, r.Header.Get("Content-Length"), len(content))
			}
			if packed := r.Header.Get("Content-Encoding") == "gzip"; packed != (target != "/") || packed && len(unzip(t, content)) == 0 {
				t.Errorf("Content-Encoding %q", r.Header.Get("Content-Encoding"))
			}
			if got, want := r.Header.Get("Content-Type"), types[path.Ext(target)]; got != want {
				t.Errorf("Content-Type %q, want %q", got, want)
			}
			if got := r.Header.Get("Content-Security-Policy"); got != web.ContentSecurityPolicy {
				t.Errorf("Content-Security-Policy %q", got)
			}
			if got := r.Header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options %q", got)
			}
			immutable := strings.Contains(r.Header.Get("Cache-Control"), "immutable")
			if want := strings.HasPrefix(target, "/assets/"); immutable != want {
				t.Errorf("Cache-Control %q", r.Header.Get("Cache-Control"))
			}
		})
	}
}

func TestHandlerRefuses(t *testing.T) {
	h := web.Handler(web.Options{})
	for _, target := range []string{"/nothing", "/assets/", "/assets/../web.go", "/index.html.gz", "/assets/%00"} {
		if r := get(t, h, "GET", target); r.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: status %d, want 404", target, r.StatusCode)
		}
	}
	r := get(t, h, "POST", "/")
	if r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST /: status %d, Allow %q", r.StatusCode, r.Header.Get("Allow"))
	}
	head := get(t, h, "HEAD", "/", "Accept-Encoding", "gzip")
	if head.StatusCode != http.StatusOK || len(body(t, head)) != 0 || head.Header.Get("Content-Length") == "0" {
		t.Errorf("HEAD /: status %d, Content-Length %s", head.StatusCode, head.Header.Get("Content-Length"))
	}
}

// Which queries are in the page is looked at whenever it is asked for.
func TestOptionIsDemo(t *testing.T) {
	demo := false
	h := web.Handler(web.Options{
		Example: &web.Tab{Query: "query Mine { __typename }"}, IsDemo: func(context.Context) bool { return demo },
	})
	for _, demo = range []bool{false, true, false} {
		text := string(body(t, get(t, h, "GET", "/")))
		if strings.Contains(text, "query Mine") == demo {
			t.Errorf("demo %v: %s", demo, text)
		}
	}
}

// The page has no inline script, which the policy would refuse.
func TestPageHasNoInlineScript(t *testing.T) {
	page := body(t, get(t, web.Handler(web.Options{}), "GET", "/"))
	for _, script := range regexp.MustCompile(`(?s)<script[^>]*>(.*?)</script>`).FindAllSubmatch(page, -1) {
		if len(bytes.TrimSpace(script[1])) > 0 {
			t.Errorf("inline script: %s", script[1])
		}
	}
}

func TestLicences(t *testing.T) {
	text := string(unzip(t, body(t, get(t, web.Handler(web.Options{}), "GET", "/THIRD-PARTY-LICENSES.txt"))))
	for _, name := range []string{"graphiql 5.", "monaco-editor ", "react ", "graphql ", "prettier ", "monaco-graphql "} {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `.*\(MIT\)$`).MatchString(text) {
			t.Errorf("the licence of %s is missing", name)
		}
	}
	// What comes inside packages: prettier's parser of JSON, Monaco's font of icons.
	for _, line := range []string{`## @babel/parser@.*`, `@vscode/codicons .*\(CC-BY-4\.0\)`, `Attribution 4\.0 International`} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
			t.Errorf("no line is like %s", line)
		}
	}
}

// stamp is what the built files carry: the hash of what they were built from, and
// that of each but the stamp's own, by path.
func stamp(t *testing.T) (sources string, built map[string]string) {
	t.Helper()
	zipped, err := os.ReadFile("playground/dist/sources.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(unzip(t, zipped))), "\n")
	built = map[string]string{}
	for _, line := range lines[1:] {
		hash, name, _ := strings.Cut(line, "  ")
		built[name] = hash
	}
	return lines[0], built
}

// builtFiles are the files in a directory of built ones, as they were before they
// were compressed.
func builtFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	files := os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		zipped, err := fs.ReadFile(files, name)
		found[strings.TrimSuffix(name, ".gz")] = unzip(t, zipped)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The built files are what the build has written, all of it and nothing else.
func TestBuiltFilesAreWhatWasBuilt(t *testing.T) {
	_, want := stamp(t)
	got := map[string]string{}
	for name, content := range builtFiles(t, "playground/dist") {
		if name != "sources.txt" {
			got[name] = fmt.Sprintf("%x", sha256.Sum256(content))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 10 {
		t.Errorf("playground/dist was changed after it was built (-built +there): run npm ci && npm run build in internal/web/playground\n%s", diff)
	}
}

// Where ASOF_PLAYGROUND_BUILD is set, and npm ci was run in playground, the files are
// built anew, which has to give the same.
func TestBuildIsReproducible(t *testing.T) {
	if os.Getenv("ASOF_PLAYGROUND_BUILD") == "" {
		t.Skip("ASOF_PLAYGROUND_BUILD is not set: the Playground is not built anew")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "npm", "run", "build", "--", "--outDir", dir, "--emptyOutDir")
	build.Dir = "playground"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v (was npm ci run?)\n%s", err, out)
	}
	got, want := builtFiles(t, dir), builtFiles(t, "playground/dist")
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s is another", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files were built, %d are there", len(got), len(want))
	}
}

// The built files carry the hash of what they were built from.
func TestBuiltFilesAreCurrent(t *testing.T) {
	sources := os.DirFS("playground")
	var names []string
	err := fs.WalkDir(sources, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == "node_modules" || entry.Name() == "dist":
			return fs.SkipDir
		case !entry.IsDir():
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	hash := sha256.New()
	for _, name := range names {
		content, err := fs.ReadFile(sources, name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(hash, "%s\n%d\n%s", name, len(content), content) // a hash never fails
	}
	want := hex.EncodeToString(hash.Sum(nil))
	if got, _ := stamp(t); got != want {
		t.Errorf("playground/dist was built from other sources: run npm ci && npm run build in internal/web/playground")
	}
}
