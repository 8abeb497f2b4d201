package mongostore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The manual lists every test that needs more of a server than one with its protocol,
// and says how to run exactly those.
func TestManualListsWhatHasNotRun(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "mongodb.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(manual), "## What has not run on a real server yet")
	if !found {
		t.Fatal("the manual has no list of what has not run")
	}
	pattern := regexp.MustCompile(`-run '([^']+)' \./storage/mongostore\n`).FindStringSubmatch(section)
	if pattern == nil {
		t.Fatal("the manual does not say how to run what has not run")
	}
	runs := regexp.MustCompile(pattern[1])
	needy := needyTests(t)
	if len(needy) == 0 {
		t.Fatal("no test asks for anything")
	}
	for _, name := range needy {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("the manual does not list %s", name)
		}
		if !runs.MatchString(name) {
			t.Errorf("the manual's command does not run %s", name)
		}
	}
	for name := range strings.SplitSeq(pattern[1], "|") {
		if !slices.ContainsFunc(needy, func(test string) bool { return strings.HasPrefix(test, name) }) {
			t.Errorf("the manual's command asks for %s, which runs on any server, or is not there", name)
		}
	}
}

// needyTests are the tests of this package that ask a server for what it can do, or
// for servers of their own.
func needyTests(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if of, ok := s.X.(*ast.Ident); ok && of.Name == "mongotest" && slices.Contains([]string{"Requires", "New", "NewLocked"}, s.Sel.Name) {
						names = append(names, f.Name.Name)
					}
				}
				return true
			})
		}
	}
	return names
}
