package app

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Variables of the environment that are the program's begin so, except those
// for its tests.
const (
	variablePrefix     = "ASOF_"
	testVariablePrefix = "ASOF_TEST"
)

// variables are the names of the variables of all commands' flags, sorted.
func variables(node *kong.Node) []string {
	var names []string
	for _, flag := range node.Flags {
		names = append(names, flag.Envs...)
	}
	for _, child := range node.Children {
		names = append(names, variables(child)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ignoreEmpty makes variables that are set to nothing count as not set, for the
// flags of all commands: that is how a file for containers leaves one out.
func ignoreEmpty(node *kong.Node) {
	for _, flag := range node.Flags {
		var set []string
		for _, name := range flag.Tag.Envs {
			if value, ok := os.LookupEnv(name); !ok || value != "" {
				set = append(set, name)
			}
		}
		flag.Tag.Envs = set
	}
	for _, child := range node.Children {
		ignoreEmpty(child)
	}
}

// unknownVariable is a variable that no flag reads.
type unknownVariable struct {
	name    string
	nearest string // what may have been meant; "": nothing is near
}

// unknownVariables finds, in an environment (NAME=value each), the variables
// that look like the program's and are not among the known ones.
func unknownVariables(environment, known []string) []unknownVariable {
	var found []unknownVariable
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || strings.HasPrefix(name, testVariablePrefix) || slices.Contains(known, name) {
			continue
		}
		found = append(found, unknownVariable{name, nearest(name, known)})
	}
	slices.SortFunc(found, func(a, b unknownVariable) int { return cmp.Compare(a.name, b.name) })
	return found
}

// warnUnknown says which variables have no effect. Their values are not told:
// they may be secrets.
func warnUnknown(ctx context.Context, logger *slog.Logger, unknown []unknownVariable) {
	for _, v := range unknown {
		if v.nearest == "" {
			logger.WarnContext(ctx, "a variable of the environment has no effect: no flag has that name (see asof --help for the flags; --cors-origin is ASOF_CORS_ORIGIN)",
				"variable", v.name)
			continue
		}
		logger.WarnContext(ctx, "a variable of the environment has no effect: no flag has that name", "variable", v.name, "nearest", v.nearest)
	}
}

// nearest returns the name that the fewest edits lead to from a misspelt one;
// "" where more than half of what follows the prefix is different.
func nearest(name string, known []string) string {
	best, edits := "", (len(name)-len(variablePrefix))/2+1
	for _, k := range known {
		if d := distance(name, k); d < edits {
			best, edits = k, d
		}
	}
	return best
}

// distance is how many characters must be put in, left out or replaced to make
// one text the other (Levenshtein, by the algorithm of Wagner and Fischer). The
// texts are ASCII; of others, bytes are counted.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
