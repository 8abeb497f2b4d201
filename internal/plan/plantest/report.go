package plantest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// Report says what a run compared.
type Report struct {
	Seed        uint64
	Operations  int
	Together    int // of them that were repeated at the same time as others
	Executed    int // of them that were begun, and have data
	Whole       int // of those that have no error
	Nulled      int // of those whose data is null
	Reads       int // of those that are queries
	Planned     int // of these that were answered by a plan
	Ways        map[Transport]int
	Codes       map[string]int // of the first errors
	Unplanned   map[string]int // why the others were not
	Differences []*Difference
	Where       []string // how to see them again
}

func newReport(seed uint64) *Report {
	return &Report{Seed: seed, Ways: map[Transport]int{}, Codes: map[string]int{}, Unplanned: map[string]int{}}
}

// add counts an operation.
func (r *Report) add(op *Operation, way Transport, want, got answer) {
	r.Operations++
	r.Ways[way]++
	body := want.body
	if way == Events || way == WebSocket {
		return // counted by the ways whose answers are one object
	}
	code := gjson.Get(body, "errors.0.extensions.code")
	if code.Exists() {
		r.Codes[code.Str]++
	}
	if !want.executed() {
		return
	}
	r.Executed++
	if !code.Exists() {
		r.Whole++
	}
	if gjson.Get(body, "data").Type == gjson.Null {
		r.Nulled++
	}
	if op.mutates() {
		return
	}
	r.Reads++
	if reason, ok := strings.CutPrefix(got.how, "plan"); ok && reason == "" {
		r.Planned++
	} else {
		r.Unplanned[strings.TrimPrefix(got.how, "gqlgen; ")]++
	}
}

func (r *Report) differ(d *Difference, world uint64) {
	r.Differences = append(r.Differences, d)
	r.Where = append(r.Where, fmt.Sprintf("seed %d, world %d, operation %d", r.Seed, world, r.Operations))
}

// Worth returns an error where the comparison says little: where less than half
// of the reads were planned, so that gqlgen's executor was compared with itself,
// or where few operations were executed, or few of those without an error.
func (r *Report) Worth() error {
	var errs []error
	if r.Reads == 0 || 2*r.Planned < r.Reads {
		errs = append(errs, fmt.Errorf("plantest: of %d reads only %d were planned", r.Reads, r.Planned))
	}
	if 2*r.Executed < r.Operations*8/10 || 2*r.Whole < r.Executed {
		errs = append(errs, fmt.Errorf("plantest: of %d operations only %d were executed, and %d of them without an error", r.Operations, r.Executed, r.Whole))
	}
	return errors.Join(errs...)
}

// String is a summary of a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d operations, %d more at the same time as others, %d differences\n", r.Seed, r.Operations, r.Together, len(r.Differences))
	fmt.Fprintf(&b, "%d executed, %d without error, %d with data null; of %d reads %d were planned\n", r.Executed, r.Whole, r.Nulled, r.Reads, r.Planned)
	counts(&b, "sent by", r.Ways)
	counts(&b, "first errors", r.Codes)
	counts(&b, "not planned", r.Unplanned)
	return b.String()
}

func counts[K ~string](b *strings.Builder, title string, m map[K]int) {
	if len(m) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:", title)
	if len(m) > 12 {
		fmt.Fprintf(b, " (the most frequent of %d)", len(m))
	}
	for i, k := range slices.SortedFunc(maps.Keys(m), func(x, y K) int { return cmp.Or(m[y]-m[x], cmp.Compare(x, y)) }) {
		if i < 12 {
			fmt.Fprintf(b, " %s %d,", k, m[k])
		}
	}
	b.WriteString("\n")
}
