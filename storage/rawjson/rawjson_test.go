package rawjson_test

import (
	"math/rand/v2"
	"testing"

	"github.com/asof/asof/storage/rawjson"
)

func TestWithout(t *testing.T) {
	const escaped = `"\u0061"`
	for _, c := range []struct{ object, want string }{
		{`{}`, `{}`},
		{`{"a":1}`, `{}`},
		{`{"a":1,"b":{"a":[1,"}"]},"c":"x"}`, `{"b":{"a":[1,"}"]}}`},
		{`{"b":2,` + escaped + `:{"a":1},"d":null}`, `{"b":2,"d":null}`},
		{`{"aa":1,"a":2,"ca":3}`, `{"aa":1,"ca":3}`},
		{`["a"]`, `{}`},
		{``, `{}`},
	} {
		if got := string(rawjson.Without([]byte(c.object), []string{"a", "c"})); got != c.want {
			t.Errorf("%s: got %s, want %s", c.object, got, c.want)
		}
	}
}

// A text ends at its first quote that no backslash escapes.
func TestEndOfTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		b := []byte{'"'}
		for range random.IntN(12) {
			b = append(b, `\\"a,`[random.IntN(5)])
		}
		want := -1
		for i := 1; i < len(b); i++ {
			if b[i] == '\\' {
				i++
			} else if b[i] == '"' {
				want = i + 1
				break
			}
		}
		if got := rawjson.End(b, 0); got != want {
			t.Fatalf("the text at the beginning of %s ends at %d, want %d", b, got, want)
		}
	}
}
