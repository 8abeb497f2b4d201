package literal

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is closer to 0 than a float64 keeps exactly is read as 0, and no client can write it as a Float.
func TestNumbersNearZero(t *testing.T) {
	for text, want := range map[string]float64{"2e-324": 0, "-5e-324": 0, "0.1e-307": 0, "9.99e-308": 0, "1e-307": 1e-307, "-1e-300": -1e-300, "0e-999": 0, "25e-1": 2.5, "-1": -1, "0": 0} {
		if x, err := ParseFloat(text); err != nil || x != want {
			t.Errorf("ParseFloat(%s) = %v, %v; want %v", text, x, err, want)
		}
		refused := want == 0 && strings.ContainsAny(text, "12345679") && !strings.HasPrefix(text, "0e")
		if x, err := Float(json.Number(text)); (err != nil) != refused || err == nil && x != want {
			t.Errorf("Float(%s) = %v, %v", text, x, err)
		}
		if !InRange(text) {
			t.Errorf("%s is said to be out of range", text)
		}
	}
	if InRange("1e309") || InRange("-2e308") {
		t.Error("what is larger than a float64 is said to be in range")
	}
}
