package transfer

import (
	"strings"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	now := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	var out strings.Builder
	m := NewMeter(&out, func() time.Time { return now }, "imported", 1000)
	tests := []struct {
		after time.Duration
		done  Progress
		want  string
	}{
		{100 * time.Millisecond, Progress{10, 5}, ""}, // too soon
		{900 * time.Millisecond, Progress{5000, 500}, "\r\rimported 5000 versions, 5000/s, 50%"},
		{time.Second, Progress{5001, 2000}, "\r" + strings.Repeat(" ", 35) + "\rimported 5001 versions, 2500/s, 100%"},
	}
	for _, test := range tests {
		now = now.Add(test.after)
		out.Reset()
		m.Update(test.done)
		if got := out.String(); got != test.want {
			t.Errorf("after %s: %q, want %q", test.after, got, test.want)
		}
	}
	out.Reset()
	m.Clear()
	if got, want := out.String(), "\r"+strings.Repeat(" ", 36)+"\r"; got != want {
		t.Errorf("cleared with %q, want %q", got, want)
	}
}
