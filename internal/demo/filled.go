package demo

import (
	"context"

	"github.com/asof/asof/storage/driver"
)

// Filled reports whether a store holds the demo's catalogue, be it from Fill or from
// an import of what was exported: the first version of the project that most of the
// story is about.
func Filled(ctx context.Context, engine driver.Engine) (bool, error) {
	first, err := engine.Get(ctx, software, []driver.Ref{{Key: "lanternfish", Number: 1}}, []string{"name"})
	if err != nil {
		return false, err
	}
	return first[0] != nil && first[0].Author == "mira", nil
}
