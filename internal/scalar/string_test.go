package scalar_test

import (
	"bytes"
	"testing"

	"github.com/asof/asof/internal/scalar"
)

// Both ways to write a string have the same bytes.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "a \"b\"\\c\n\r\t\x00\x1f\x7f", "grün <&> \u2028 😀", "\xff broken \xc3", "\"", "\x01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want bytes.Buffer
		scalar.MarshalString(s).MarshalGQL(&want)
		for _, got := range [][]byte{scalar.AppendString([]byte("x"), s), scalar.AppendString([]byte("x"), []byte(s))} {
			if string(got) != "x"+want.String() {
				t.Errorf("%q, want %q", got, want.String())
			}
		}
	})
}
