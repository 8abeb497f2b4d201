package app

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnknownVariables(t *testing.T) {
	known := []string{"ASOF_ADDR", "ASOF_CORS_ORIGIN", "ASOF_MAX_DEPTH", "ASOF_MAX_PAGE", "ASOF_STORE"}
	for _, c := range []struct {
		environment string
		want        string
	}{
		{"", "[]"},
		{"PATH=/bin ASOF_ADDR=:1 ASOF_STORE= ASOF_TESTDATA=/data ASOF_TEST_MONGODB_URI=x ASOFADDR=1 XASOF_ADRR=1", "[]"},
		{"ASOF_ADRR=:1", "[ASOF_ADRR]"},
		{"ASOF_STOR=a=b ASOF_ADDRESS=:1", "[ASOF_ADDRESS ASOF_STOR]"},
		{"ASOF_=1", "[ASOF_]"},
	} {
		if got := fmt.Sprint(unknownVariables(strings.Fields(c.environment), known)); got != c.want {
			t.Errorf("%s: %s, want %s", c.environment, got, c.want)
		}
	}
}

// A misspelt variable is logged once when the program starts, without its value;
// those of flags of other commands are known as well.
func TestMisspeltVariableIsTold(t *testing.T) {
	t.Setenv("ASOF_MAX_DEPHT", "secret")
	t.Setenv("ASOF_LENIENT", "true")
	t.Setenv("ASOF_MAX_PAGE", "50")
	t.Setenv("ASOF_TEST_OF_THIS", "1")
	for _, args := range [][]string{
		{"import", "-", "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")},
		{"health", "--addr=127.0.0.1:1"},
		{"import", "-", "--log-format=json", "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")},
	} {
		status, _, stderr := run(t, "", args...)
		if status == 2 || strings.Count(stderr, "has no effect") != 1 || strings.Contains(stderr, "secret") ||
			!strings.Contains(stderr, "ASOF_MAX_DEPHT") {
			t.Errorf("%v: status %d:\n%s", args, status, stderr)
		}
	}
}

// A variable that is set to nothing is as good as one that is not set.
func TestEmptyVariableIsNotSet(t *testing.T) {
	for _, name := range []string{"ASOF_DEMO", "ASOF_STORE", "ASOF_MAX_DEPTH", "ASOF_SYNC", "ASOF_SLOW_OPERATION", "ASOF_CORS_ORIGIN", "ASOF_LOG_LEVEL"} {
		t.Setenv(name, "")
	}
	var given, usual Main
	for m, args := range map[*Main][]string{
		&given: {"serve"},
		&usual: {"serve", "--store=sqlite:./asof.db", "--max-depth=15", "--sync=full", "--slow-operation=1s", "--log-level=info"},
	} {
		if _, err := m.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(usual.flags, given.flags); diff != "" || len(given.unknown) > 0 {
		t.Errorf("%s; unknown: %v", diff, given.unknown)
	}
}
