package plantest

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// Servers makes the pair that matters: the program's own handler with gqlgen's
// executor, and with plans, for a schema that code was generated from; both with
// these flags.
func Servers(types []*storage.Type, schema func(*storage.Store) graphql.ExecutableSchema, flags ...string) func(driver.Engine) (*Pair, error) {
	// program is what `asof serve` serves. Its clock stands, as what it measures is in
	// no answer.
	program := func(engine driver.Engine, executor string) (http.Handler, error) {
		m := &app.Main{
			Types: types, Schema: schema,
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
			Now: beginning.Time,
		}
		h, err := m.Handler(engine, append([]string{"--log-level=error", "--executor=" + executor}, flags...)...)
		if err != nil {
			return nil, fmt.Errorf("plantest: the program with %s and %q: %w", executor, flags, err)
		}
		return h, nil
	}
	return func(engine driver.Engine) (*Pair, error) {
		trusted, err := program(engine, "gqlgen")
		if err != nil {
			return nil, err
		}
		other, err := program(engine, "plan")
		if err != nil {
			return nil, err
		}
		return &Pair{Trusted: trusted, Other: other}, nil
	}
}
