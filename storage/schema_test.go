package storage_test

import (
	"fmt"
	"testing"

	"github.com/asof/asof/storage"
)

// A program that opens a store with another schema than the last one is told that one's number, once.
func TestAnotherSchemaIsTold(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct{ sdl, before string }{{"one", ""}, {"one", ""}, {"two", "one"}, {"two", ""}} {
		want := ""
		if c.before != "" {
			want = fmt.Sprintf("%08x", storage.SchemaNumber(c.before))
		}
		if got := must(e.store.UseSchema(t.Context(), c.sdl, true))(t); got != want {
			t.Errorf("%s: the one before is %q, not %q", c.sdl, got, want)
		}
	}
}
