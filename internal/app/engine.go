package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// openEngine opens the store that --store names.
func (m *Main) openEngine(ctx context.Context) (driver.Engine, error) {
	name := m.flags.Store
	scheme, rest, ok := strings.Cut(name, ":")
	switch {
	case ok && scheme == "sqlite" && rest != "":
		return m.openSQLite(ctx, rest)
	case scheme == "mongodb" || scheme == "mongodb+srv":
		return m.openMongo(ctx, name)
	case !ok && name != "":
		return nil, usageError{fmt.Errorf("--store %s: want sqlite:PATH or mongodb://HOST/DATABASE; for this file write --store sqlite:%s", name, name)}
	default:
		return nil, usageError{fmt.Errorf("--store %s: want sqlite:PATH, such as sqlite:./asof.db, or mongodb://HOST/DATABASE", name)}
	}
}

// openStore opens the engine and gives its documents their types.
func (m *Main) openStore(ctx context.Context) (*storage.Store, error) {
	engine, err := m.openEngine(ctx)
	if err != nil {
		return nil, err
	}
	store, err := storage.New(counting{engine}, model.Types, storage.WithLogger(m.logger()), storage.WithLimits(m.flags.Serve.Limits.storage()))
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return store, nil
}
