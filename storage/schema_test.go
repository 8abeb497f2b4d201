package storage_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/asof/asof/storage"
)

// A program that opens a store with another schema than the last one says how to see what that means.
func TestAnotherSchemaIsLogged(t *testing.T) {
	e := newEnv(t)
	var log bytes.Buffer
	for _, c := range []struct {
		sdl   string
		warns bool
	}{{"one", false}, {"one", false}, {"two", true}, {"two", false}} {
		log.Reset()
		e.under(c.sdl, fixtureTypes(), storage.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		want := fmt.Sprintf("number=%08x", storage.SchemaNumber("one"))
		if warns := strings.Contains(log.String(), want); warns != c.warns {
			t.Errorf("%s: %s", c.sdl, &log)
		}
	}
}
