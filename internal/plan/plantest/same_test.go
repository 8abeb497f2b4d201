package plantest

import (
	"os"
	"testing"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

// check fails where servers differ, or where the comparison would say nothing.
func check(t *testing.T, report *Report, err error) {
	t.Helper()
	t.Log(report)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range report.Differences {
		t.Errorf("%s: %s", report.Where[i], d)
	}
	if err := report.Worth(); err != nil {
		t.Error(err)
	}
}

// Random operations are answered the same, byte for byte, by plans and by
// gqlgen's executor. ASOF_PLANTEST_SEED and ASOF_PLANTEST_OPERATIONS choose others
// and more.
func TestPlansSayTheSame(t *testing.T) {
	report, err := Run(t.Context(), config(t, sqlite(t)))
	check(t, report, err)
}

// What is too long is refused by both, also where a part of it is taken away
// again because a non-null field has no value.
func TestPlansRefuseTheSame(t *testing.T) {
	cfg := config(t, sqlite(t))
	if os.Getenv(operationsVar) == "" {
		cfg.Operations /= 6
	}
	cfg.PerWorld = cfg.Operations/3 + 1
	cfg.Serve = Servers(model.Types, resolvers.NewSchema, "--max-answer=300")
	report, err := Run(t.Context(), cfg)
	t.Log(report)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range report.Differences {
		t.Errorf("%s: %s", report.Where[i], d)
	}
	if refused := report.Codes["QUERY_TOO_COMPLEX"]; 20*refused < report.Operations || 10*report.Whole < report.Operations {
		t.Errorf("of %d operations %d were refused, and %d answered without an error", report.Operations, refused, report.Whole)
	}
}

// The same on MongoDB, with a sixth of the operations: each reads over the
// network, and the executors are the same.
func TestPlansSayTheSameOnMongoDB(t *testing.T) {
	cfg := config(t, mongodb(t))
	if os.Getenv(operationsVar) == "" {
		cfg.Operations /= 6
	}
	cfg.PerWorld = min(perWorld, cfg.Operations/3+1) // histories of every kind
	report, err := Run(t.Context(), cfg)
	check(t, report, err)
}
