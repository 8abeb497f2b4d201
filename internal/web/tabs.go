package web

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

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
