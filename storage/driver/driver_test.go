package driver

import (
	"testing"
)

func TestNotes(t *testing.T) {
	var none *Notes
	none.Keep(1)
	if got := none.Get(); got != nil {
		t.Errorf("nowhere: %v", got)
	}
	var notes Notes
	if got := notes.Get(); got != nil {
		t.Errorf("at first: %v", got)
	}
	for _, value := range []any{1, "two", nil, 4} {
		notes.Keep(value)
		if got := notes.Get(); got != value {
			t.Errorf("%v, not %v", got, value)
		}
	}
}
