package plantest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/asof/asof/internal/codegen/codegentest"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// moreNulls are objects in objects and lists in lists, with every place for a
// null that may not be there.
const moreNulls = `
type Tour @versioned {
  title: String!
  start: Stop!
  stops: [Stop!]!
  maybe: [Stop]
  guide: Person @ref
  crew: [Person] @ref @stored(as: "the \"crew\"")
}
type Stop {
  name: String!
  next: Leg
  legs: [Leg!]
  rating: Float! @default(value: 2.5)
}
type Leg { minutes: Int! seen: [DateTime!]! cost: Decimal open: Boolean! kind: Plan! data: [JSON!] day: Date! names: [String] }
`

// The comparison for a schema that has every kind of field, in a program that is
// generated and compiled for it.
func TestPlansSayTheSameOfEveryKind(t *testing.T) {
	dir := codegentest.Module(t)
	var sdl strings.Builder
	for _, name := range []string{"kinds", "nested", "refs"} {
		b, err := os.ReadFile(filepath.Join(codegentest.Root(t), "internal", "codegen", "testdata", "expand", name+".graphqls"))
		if err != nil {
			t.Fatal(err)
		}
		sdl.Write(append(b, '\n'))
	}
	sdl.WriteString(moreNulls)
	if err := os.WriteFile(filepath.Join(dir, "schema.graphqls"), []byte(sdl.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	codegentest.Generate(t, dir)
	binary := filepath.Join(t.TempDir(), "compare")
	codegentest.Run(t, dir, "go", slices.Concat([]string{"build"}, buildFlags(), []string{"-o", binary, "./internal/plan/plantest/cmd"})...)
	compare := func(t *testing.T, operations uint64, flags ...string) {
		t.Helper()
		if race {
			operations /= 10
		}
		seed, operations := number(t, seedVar, 1), number(t, operationsVar, operations)
		t.Log(codegentest.Run(t, dir, binary, append(flags, "-seed", strconv.FormatUint(seed, 10), "-operations", strconv.FormatUint(operations, 10))...))
	}
	t.Run("sqlite", func(t *testing.T) { compare(t, 8000) })
	t.Run("mongodb", func(t *testing.T) { compare(t, 1500, "-mongodb", mongotest.URI(t)) })
}
