package plantest

import (
	"strings"
	"testing"
)

// A comparison of little is told from one that found no difference.
func TestWorth(t *testing.T) {
	for _, c := range []struct {
		name   string
		report Report
		want   string // empty: it is worth something
	}{
		{"much", Report{Operations: 100, Executed: 80, Whole: 60, Reads: 70, Planned: 65}, ""},
		{"just enough", Report{Operations: 100, Executed: 40, Whole: 20, Reads: 40, Planned: 20}, ""},
		{"nothing", Report{}, "of 0 reads only 0 were planned"},
		{"gqlgen with itself", Report{Operations: 100, Executed: 80, Whole: 60, Reads: 70, Planned: 34}, "of 70 reads only 34 were planned"},
		{"mutations only", Report{Operations: 100, Executed: 80, Whole: 60}, "of 0 reads only 0 were planned"},
		{"refusals", Report{Operations: 100, Executed: 39, Whole: 39, Reads: 39, Planned: 39}, "only 39 were executed"},
		{"errors", Report{Operations: 100, Executed: 80, Whole: 39, Reads: 70, Planned: 65}, "39 of them without an error"},
	} {
		err := c.report.Worth()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
