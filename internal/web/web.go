// Package web serves the Playground: GraphiQL, built from npm packages into
// playground/dist and embedded, so that a browser needs no other host than this
// server and nobody needs npm to build or run it.
//
// Invariants:
//   - no page asks another host for anything; the Content-Security-Policy that
//     every answer carries makes the browser hold that;
//   - files below assets/ have a hash of their content in the name and never
//     change: browsers keep them for ever. All others are asked for again by ETag;
//   - the built files use relative URLs only, so the pages work below any path.
//
// To build the Playground anew (Node 20.19 or later):
//
//	cd internal/web/playground && npm ci && npm run build
package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"

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

// exampleMark is where the built page keeps the query in place of the ready ones.
const exampleMark = `name="asof-example" content=""`

// introspectionMark is where the built page keeps whether to ask for the schema.
const introspectionMark = `name="asof-introspection" content="on"`

// Handler serves the Playground at "/" and its files below it. Mount it at the
// root, or below another path by http.StripPrefix.
//
// Anything else than GET and HEAD is answered 405, an unknown path 404.
// It panics if the embedded files are broken, which is a fault of the build and
// shows in any test that calls it.
func Handler(opts Options) http.Handler {
	files, err := load(distFS())
	if err != nil {
		panic("web: embedded playground: " + err.Error())
	}
	if opts.NoIntrospection {
		if err := files.replace(introspectionMark, `name="asof-introspection" content="off"`); err != nil {
			panic("web: embedded playground: " + err.Error())
		}
	}
	if opts.Example != nil { // the last: the page as it is until here is the demo's
		files.demo, files.isDemo = files.byPath[page], opts.IsDemo
		if err := files.setExample(opts.Example); err != nil {
			panic("web: embedded playground: " + err.Error())
		}
	}
	return files
}

func (s *fileSet) setExample(tab *Tab) error {
	content, err := json.Marshal(map[string]any{"query": tab.Query, "variables": tab.Variables})
	if err != nil {
		return err
	}
	return s.replace(exampleMark, `name="asof-example" content="`+html.EscapeString(string(content))+`"`)
}

// replace puts a text in the page in the place of a mark.
func (s *fileSet) replace(mark, text string) error {
	plain, err := s.byPath[page].plain()
	if err != nil {
		return err
	}
	if !strings.Contains(string(plain), mark) {
		return fmt.Errorf("%s has no %s", page, mark)
	}
	s.byPath[page], err = newFile(page, []byte(strings.Replace(string(plain), mark, text, 1)))
	return err
}

// allowed answers methods that a page does not have.
func allowed(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "only GET and HEAD are served here; GraphQL is at /graphql", http.StatusMethodNotAllowed)
	return false
}

//go:embed playground/src/tabs/*.graphql playground/src/tabs/*.json
var tabFiles embed.FS

// A Tab is one of the ready queries of the Playground.
type Tab struct {
	Name      string          // of the file: "02-as-of"
	Title     string          // "As of an instant"
	About     string          // what it shows, one or two sentences
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
	var comment []string
	for line := range strings.Lines(string(query)) {
		text, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		comment = append(comment, strings.TrimSpace(text))
	}
	title, about, ok := strings.Cut(strings.Join(comment, " "), ": ")
	if !ok || len(comment) < 2 {
		return Tab{}, errors.New(`the comment at the top has to say "# Title: what it shows" in two lines`)
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
	return Tab{Name: path.Base(base), Title: title, About: about, Query: string(query), Variables: variables}, nil
}
