package plantest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/internal/codegen/codegentest"
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
	if testing.Short() || race {
		t.Skip("generates and compiles a program, without the race detector")
	}
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
	codegentest.Run(t, dir, "go", "build", "-o", binary, "./internal/plan/plantest/cmd")
	seed, operations := os.Getenv("ASOF_PLANTEST_SEED"), os.Getenv("ASOF_PLANTEST_OPERATIONS")
	if seed == "" {
		seed = "1"
	}
	if operations == "" {
		operations = "10000"
	}
	t.Log(codegentest.Run(t, dir, binary, "-seed", seed, "-operations", operations))
}
