package plantest

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/storage/driver"
)

// Servers makes the pair that matters: the program's own handler with gqlgen's
// executor, and with plans.
func Servers(engine driver.Engine) (*Pair, error) { return servers(engine) }

// servers is Servers with more flags for both.
func servers(engine driver.Engine, flags ...string) (*Pair, error) {
	trusted, err := program(engine, append(flags, "--executor=gqlgen")...)
	if err != nil {
		return nil, err
	}
	other, err := program(engine, append(flags, "--executor=plan")...)
	if err != nil {
		return nil, err
	}
	return &Pair{Trusted: trusted, Other: other}, nil
}

// program is what `asof serve` with some flags serves. Its clock stands, as what
// it measures is in no answer.
func program(engine driver.Engine, flags ...string) (http.Handler, error) {
	m := &app.Main{
		Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		Now: beginning.Time,
	}
	h, err := m.Handler(engine, append([]string{"--log-level=error"}, flags...)...)
	if err != nil {
		return nil, fmt.Errorf("plantest: the program with %q: %w", flags, err)
	}
	return h, nil
}
