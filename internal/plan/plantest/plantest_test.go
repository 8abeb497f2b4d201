package plantest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/asof/asof/internal/fixture/graph"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// Variables of the environment that choose other operations, and more.
const (
	seedVar       = "ASOF_PLANTEST_SEED"
	operationsVar = "ASOF_PLANTEST_OPERATIONS"
)

// sqlite opens empty stores in files of their own.
func sqlite(t testing.TB) func() (driver.Engine, error) {
	dir, n := t.TempDir(), 0
	return func() (driver.Engine, error) {
		n++
		return sqlitestore.Open(t.Context(), filepath.Join(dir, strconv.Itoa(n)+".db"), sqlitestore.Options{
			Collections: storage.CollectionsOf(model.Types), Sync: sqlitestore.SyncOff,
		})
	}
}

// number reads a variable of the environment that replaces a number.
func number(t testing.TB, name string, other uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return other
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// config is what the tests have in common.
func config(t testing.TB, open func() (driver.Engine, error)) Config {
	t.Helper()
	operations := uint64(14_000)
	if race {
		operations = 1500
	}
	return Config{
		Types: model.Types, Schema: graph.NewExecutableSchema(graph.Config{}).Schema(), Open: open, Serve: Servers(model.Types, resolvers.NewSchema),
		Seed: number(t, seedVar, 1), Operations: int(number(t, operationsVar, operations)), Differences: 3,
	}
}
