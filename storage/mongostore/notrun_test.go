package mongostore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The manual lists every test that needs more of a server than one with its protocol,
// and says how to run exactly those, and every test to which a proxy says what a server
// would; and no test that is not there.
func TestManualListsWhatHasNotRun(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "mongodb.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(manual), "## What has not run on a real server yet")
	if !found {
		t.Fatal("the manual has no list of what has not run")
	}
	commands := map[string]*regexp.Regexp{}
	for _, command := range regexp.MustCompile(`-run '([^']+)' \./(\S+)\n`).FindAllStringSubmatch(section, -1) {
		commands[command[2]] = regexp.MustCompile(command[1])
	}
	listed := func(name string) bool { return strings.Contains(section, "`"+name+"`") }
	var tests []string
	for dir, path := range map[string]string{"storage/mongostore": ".", "e2e": filepath.Join("..", "..", "e2e")} {
		calls := callsOf(t, path)
		needy := testsThat(calls, "mongotest.Needs")
		runs := commands[dir]
		if len(needy) > 0 && runs == nil {
			t.Fatalf("the manual does not say how to run what has not run of %s", dir)
		}
		for _, name := range needy {
			if !listed(name) {
				t.Errorf("the manual does not list %s, which needs what the stand-in has not", name)
			}
			if !runs.MatchString(name) {
				t.Errorf("the manual's command does not run %s", name)
			}
		}
		if runs != nil {
			for name := range strings.SplitSeq(runs.String(), "|") {
				if !slices.ContainsFunc(needy, func(test string) bool { return strings.HasPrefix(test, name) }) {
					t.Errorf("the manual's command asks for %s, which runs on any server, or is not there", name)
				}
			}
		}
		for _, name := range testsThat(calls, "mongotest.Reply", "mongotest.Rewrite", "mongotest.NewTransactions", "mongotest.NewStreams") {
			if !listed(name) {
				t.Errorf("the manual does not list %s, to which a proxy answers", name)
			}
		}
		tests = append(tests, testsThat(calls)...)
	}
	for _, name := range regexp.MustCompile("`(Test[^`]*)`").FindAllStringSubmatch(section, -1) {
		if !slices.Contains(tests, name[1]) {
			t.Errorf("the manual lists %s, which is not there", name[1])
		}
	}
}

// callsOf lists, for each function and method of the tests in a directory, what it
// names: other ones, and what packages have. Methods are told by their names alone.
func callsOf(t *testing.T, dir string) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					calls[f.Name.Name] = append(calls[f.Name.Name], n.Name)
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok {
						calls[f.Name.Name] = append(calls[f.Name.Name], of.Name+"."+n.Sel.Name)
					}
				}
				return true
			})
		}
	}
	return calls
}

// testsThat are the tests that name one of these, by themselves or by what they call;
// all tests where nothing is asked for.
func testsThat(calls map[string][]string, names ...string) (tests []string) {
	reaches := map[string]bool{}
	for _, name := range names {
		reaches[name] = true
	}
	for more := true; more; {
		more = false
		for caller, called := range calls {
			if !reaches[caller] && (names == nil || slices.ContainsFunc(called, func(name string) bool { return reaches[name] })) {
				reaches[caller], more = true, true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reaches)) {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests = append(tests, name)
		}
	}
	return tests
}
