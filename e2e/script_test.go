// Package e2e runs scripts against the real program: one set of files for
// every engine and both executors of queries. A script speaks GraphQL over HTTP and the command line only,
// and names instants and versions by what earlier answers said, so that it
// does not know which store it runs on.
package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// program is the path of the binary under test, built once by TestMain.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "asof-e2e-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "asof")
	clearVariables()
	build := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", program, "github.com/asof/asof/internal/fixture")...)
	var output bytes.Buffer
	build.Stdout, build.Stderr = &output, &output
	if err := build.Run(); err != nil {
		panic("building the program: " + err.Error() + "\n" + output.String())
	}
	return m.Run()
}

// clearVariables takes the program's variables, which are flags, out of the
// environment: those of whoever runs the tests are not for the program under
// test, and it warns of what it does not know.
func clearVariables() {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "ASOF_") && !strings.HasPrefix(name, "ASOF_TEST") {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
}

// An engine says how to name an empty store of its own for a script.
type engine struct {
	name string
	// store returns the value of --store for a store of a script; it skips the
	// script where the engine cannot be had.
	store func(env *testscript.Env, n string) string
}

var engines = []engine{
	{"sqlite", func(env *testscript.Env, n string) string { return "sqlite:" + filepath.Join(env.WorkDir, n+".db") }},
	{"mongodb", mongoStore},
}

// executors are the ways in which the program executes queries.
func executors() []string { return []string{"plan", "gqlgen"} }

func TestScripts(t *testing.T) {
	for _, e := range engines {
		for _, executor := range executors() {
			t.Run(e.name+"/"+executor, func(t *testing.T) { runScripts(t, e, executor) })
		}
	}
}

func runScripts(t *testing.T, e engine, executor string) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("STORE", e.store(env, "first"))
			env.Setenv("STORE2", e.store(env, "second"))
			env.Setenv("ENGINE", e.name)
			env.Setenv("EXECUTOR", executor)
			env.Setenv("PATH", filepath.Dir(program)+string(os.PathListSeparator)+env.Getenv("PATH"))
			s := &session{}
			env.Values[sessionKey{}] = s
			env.Defer(s.stop)
			return nil
		},
		// [NAME] holds on the engine of that name.
		Condition: func(name string) (bool, error) { return name == e.name, nil },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":    cmdServe,
			"halt":     cmdHalt,
			"crash":    cmdCrash,
			"gql":      cmdGQL,
			"answer":   cmdAnswer,
			"remember": cmdRemember,
			"http":     cmdHTTP,
			"cut":      cmdCut,
		},
	})
}
