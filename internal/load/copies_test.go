package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Each way is measured, and all but the one without copies have some to make right.
func TestCopies(t *testing.T) {
	var out bytes.Buffer
	if err := compareCopies(t.Context(), []string{"1000"}, &out); err != nil {
		t.Fatal(err)
	}
	var report struct{ Results []copyResult }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		kept := r.Strategy != none && r.Strategy != immutable
		if r.Filter <= 0 || r.Sorted <= 0 || r.Shown <= 0 || (r.Right > 0) != kept || (r.Stall > 0) != kept {
			t.Errorf("%+v", r)
		}
	}
	if len(report.Results) != 5 {
		t.Errorf("%d ways were measured", len(report.Results))
	}
	if err := compareCopies(t.Context(), []string{"few"}, &out); err == nil {
		t.Error("a number that is none is measured")
	}
}
