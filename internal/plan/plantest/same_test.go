package plantest

import (
	"os"
	"testing"
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
	if 2*report.Planned < report.Reads {
		t.Errorf("of %d reads only %d were planned", report.Reads, report.Planned)
	}
	if 2*report.Executed < report.Operations*8/10 || 2*report.Whole < report.Executed {
		t.Errorf("of %d operations only %d were executed, and %d of them without an error", report.Operations, report.Executed, report.Whole)
	}
}

// Random operations are answered the same, byte for byte, by plans and by
// gqlgen's executor. ASOF_PLANTEST_SEED and ASOF_PLANTEST_OPERATIONS choose others
// and more.
func TestPlansSayTheSame(t *testing.T) {
	report, err := Run(t.Context(), config(t, sqlite(t)))
	check(t, report, err)
}

// The same on MongoDB, with fewer operations: each reads over the network.
func TestPlansSayTheSameOnMongoDB(t *testing.T) {
	cfg := config(t, mongodb(t))
	if os.Getenv("ASOF_PLANTEST_OPERATIONS") == "" {
		cfg.Operations = min(cfg.Operations, 2000)
	}
	cfg.PerWorld = cfg.Operations/3 + 1
	report, err := Run(t.Context(), cfg)
	check(t, report, err)
}
