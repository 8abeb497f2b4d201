package rawjson_test

import (
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
