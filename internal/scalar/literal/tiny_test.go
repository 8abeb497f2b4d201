package literal

import (
	"encoding/json"
	"testing"
)

// No client can write a Float that is closer to 0 than a float64 keeps exactly. JSON can have it.
func TestNumbersNearZero(t *testing.T) {
	for text, refused := range map[string]bool{
		"2e-324": true, "-5e-324": true, "0.1e-307": true, "9.99E-308": true, "1e-400": true, "1e-1000001": true, "-0.001E-99999999999999999999": true, "0e-1000001": false,
		"1e-307": false, "-1e-300": false, "0e-999": false, "25e-1": false, "-1": false, "0": false,
	} {
		if x, err := Float(json.Number(text)); (err != nil) != refused {
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
