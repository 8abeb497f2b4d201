// Package web serves the Playground: GraphiQL, built from npm packages into
// playground/dist and embedded, so that a browser needs no other host than this
// server and nobody needs npm to build or run it.
//
// Invariants:
//   - no page asks another host for anything; the Content-Security-Policy that
//     every answer carries makes the browser hold that;
//   - files below assets/ have a hash of their content in the name and never
//     change: browsers keep them for ever. All others are asked for each time;
//   - files are sent as they are stored, compressed by gzip, which every browser
//     reads, and the page as it is;
//   - the built files use relative URLs only, so the pages work below any path.
//
// To build the Playground anew (Node 20.19 or later):
//
//	cd internal/web/playground && npm ci && npm run build
package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// ContentSecurityPolicy is sent with every page and file. It allows this server
// and nothing else. Monaco, the editor inside GraphiQL, needs three of its parts:
// workers (files of this server; no blob: URL), style elements and attributes
// that it makes at run time, and data: URLs of the images in its style sheet.
// "connect-src 'self'" covers WebSockets of the same host and port.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; worker-src 'self'; " +
	"style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Options say what the pages have to know of the server. The zero value is what
// most servers need.
type Options struct {
	// Example takes the place of the ready queries, which are written for the
	// demo's types and documents; nil: they are shown.
	Example *Tab
	// IsDemo says, each time that the page is asked for, whether the ready queries
	// are shown although there is an Example; nil: they are not.
	IsDemo func(context.Context) bool
	// NoIntrospection: the server does not tell its schema. The page then says so,
	// instead of asking for it.
	NoIntrospection bool
}

// Where the built page keeps the query in place of the ready ones, and whether to ask for the schema.
const (
	exampleMark       = `name="asof-example" content=""`
	introspectionMark = `name="asof-introspection" content="on"`
)

// page is the one page, which is also served as "".
const page = "index.html"

// Handler serves the Playground at "/" and its files below it. Mount it at the
// root, or below another path by http.StripPrefix.
//
// Anything else than GET and HEAD is answered 405, an unknown path 404.
// It panics if the embedded page is broken, which is a fault of the build and
// shows in any test that calls it.
func Handler(opts Options) http.Handler {
	plain, err := unzipped(page)
	if err != nil {
		panic("web: embedded playground: " + err.Error())
	}
	p := &playground{page: plain, demo: plain}
	if opts.NoIntrospection {
		p.demo = replaced(p.demo, introspectionMark, `name="asof-introspection" content="off"`)
		p.page = p.demo
	}
	if opts.Example != nil {
		content, err := json.Marshal(map[string]any{"query": opts.Example.Query, "variables": opts.Example.Variables})
		if err != nil {
			panic("web: the example: " + err.Error())
		}
		p.page, p.isDemo = replaced(p.demo, exampleMark, `name="asof-example" content="`+html.EscapeString(string(content))+`"`), opts.IsDemo
	}
	return p
}

// replaced is the page with a text in the place of a mark.
func replaced(text []byte, mark, by string) []byte {
	if !bytes.Contains(text, []byte(mark)) {
		panic("web: the embedded page has no " + mark)
	}
	return bytes.Replace(text, []byte(mark), []byte(by), 1)
}

// playground serves the page and the files.
type playground struct {
	page   []byte
	demo   []byte                     // with the ready queries, where isDemo
	isDemo func(context.Context) bool // nil: never
}

//go:embed playground/dist
var dist embed.FS

// open opens a built file, which is compressed.
func open(name string) (fs.File, error) { return dist.Open("playground/dist/" + name + ".gz") }

func unzipped(name string) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// contentTypes are those of the kinds of files that the Playground is made of. The
// table is our own because mime.TypeByExtension depends on the machine.
var contentTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".ttf": "font/ttf", ".txt": "text/plain; charset=utf-8",
}

// ServeHTTP answers GET and HEAD.
func (p *playground) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are served here; GraphQL is at /graphql", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", ContentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if name == "" || name == page {
		text := p.page
		if p.isDemo != nil && p.isDemo(r.Context()) {
			text = p.demo
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		http.ServeContent(w, r, page, time.Time{}, bytes.NewReader(text))
		return
	}
	f, err := open(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	content, ok := f.(io.ReadSeeker)
	if err != nil || !ok {
		http.NotFound(w, r)
		return
	}
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", contentTypes[path.Ext(name)])
	h.Set("Content-Encoding", "gzip")
	h.Set("Content-Length", strconv.FormatInt(info.Size(), 10)) // else it is not there beside Content-Encoding
	http.ServeContent(w, r, "", time.Time{}, content)
}

//go:embed playground/src/tabs/*.graphql playground/src/tabs/*.json
var tabFiles embed.FS

// A Tab is one of the ready queries of the Playground.
type Tab struct {
	Name      string          // of the file: "02-as-of"
	Query     string          // the file as it is, comment included
	Variables json.RawMessage // an object, or nil
}

// Tabs are the ready queries in the order in which the Playground shows them.
// They are written for the demo's data; a test runs each of them on it.
func Tabs() ([]Tab, error) {
	files, err := fs.Glob(tabFiles, "playground/src/tabs/*.graphql")
	if err != nil {
		return nil, err
	}
	var tabs []Tab // Glob sorts
	for _, file := range files {
		tab, err := readTab(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		tabs = append(tabs, tab)
	}
	return tabs, nil
}

// TabsFit reports whether a schema answers the ready queries.
func TabsFit(schema *ast.Schema) (bool, error) {
	tabs, err := Tabs()
	if err != nil {
		return false, err
	}
	for _, tab := range tabs {
		if _, errs := gqlparser.LoadQueryWithRules(schema, tab.Query, rules.NewDefaultRules()); errs != nil {
			return false, nil
		}
	}
	return true, nil
}

func readTab(file string) (Tab, error) {
	query, err := tabFiles.ReadFile(file)
	if err != nil {
		return Tab{}, err
	}
	base := strings.TrimSuffix(file, ".graphql")
	variables, err := tabFiles.ReadFile(base + ".json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return Tab{}, err
	case !json.Valid(variables):
		return Tab{}, fmt.Errorf("the variables in %s.json are not JSON", base)
	}
	return Tab{Name: path.Base(base), Query: string(query), Variables: variables}, nil
}
