// Package e2e runs scripts against the real program: one set of files for
// every engine. A script speaks GraphQL over HTTP and the command line only,
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

	"github.com/asof/asof/storage/mongostore/mongotest"
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

// With the generated executor one of them runs, on one engine, and with ASOF_TEST_FULL all, on both:
// that both executors say the same, plantest tells.
func TestScripts(t *testing.T) {
	full := os.Getenv("ASOF_TEST_FULL") != ""
	for _, e := range engines {
		for _, executor := range executors() {
			var files []string // all
			switch {
			case executor == "plan" || full:
			case e.name == "sqlite":
				files = []string{"testdata/reads.txtar"}
			default:
				continue
			}
			t.Run(e.name+"/"+executor, func(t *testing.T) { runScripts(t, e, executor, files...) })
		}
	}
}

// TestTransactionScripts runs the scripts about commits of several documents on a MongoDB server
// with transactions.
func TestTransactionScripts(t *testing.T) {
	transactions := mongotest.NewTransactions(t, mongotest.NewServer(t))
	store := func(*testscript.Env, string) string {
		_, uri := transactions.Behind(t)
		return uri
	}
	runScripts(t, engine{"transactions", store}, "plan", "testdata/commits.txtar", "testdata/drafts.txtar")
}

// commitsOne reports whether an engine commits one document at a time.
func commitsOne(t *testing.T, e engine) bool {
	if e.name != "mongodb" || os.Getenv(mongotest.EnvURI) == "" {
		return false
	}
	set, _, err := mongotest.NewServer(t).ReplicaSet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set == ""
}

// runScripts runs those in files, or all.
func runScripts(t *testing.T, e engine, executor string, files ...string) {
	dir, one := "testdata", commitsOne(t, e)
	if len(files) > 0 {
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               files,
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
		// [NAME] holds on the engine of that name, [one] on one that commits one document at a time.
		Condition: func(name string) (bool, error) { return name == e.name || name == "one" && one, nil },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":    cmdServe,
			"halt":     cmdHalt,
			"crash":    cmdCrash,
			"gql":      cmdGQL,
			"follow":   cmdFollow,
			"answer":   cmdAnswer,
			"remember": cmdRemember,
			"http":     cmdHTTP,
			"cut":      cmdCut,
		},
	})
}
