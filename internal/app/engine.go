package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// checkStore refuses a --store that cannot be opened, as far as that can be told
// without making anything.
func (m *Main) checkStore() error {
	name := m.flags.Store
	scheme, rest, ok := strings.Cut(name, ":")
	switch {
	case ok && scheme == "sqlite" && strings.HasPrefix(rest, "//"):
		return usageError{fmt.Errorf("--store %s: for a file of the directory asof runs in write sqlite:%s, and for one of the root sqlite:/%[2]s", name, strings.TrimLeft(rest, "/"))}
	case ok && scheme == "sqlite" && rest != "":
		if path, _, found := strings.Cut(rest, "?"); found && !isThere(rest) {
			return usageError{fmt.Errorf("--store %s: a path to a file has no parameters; write --store sqlite:%s", name, path)}
		}
		if dir := filepath.Dir(rest); !isDirectory(dir) {
			return fmt.Errorf("there is no directory %s for the store (see --store)", dir)
		}
		return nil
	case scheme == "mongodb": // of mongodb+srv, the hosts have to be looked up
		return m.checkMongo()
	case scheme == "mongodb+srv":
		return nil
	case name != "" && unknownStore(name) == name:
		return usageError{fmt.Errorf("--store %s: want sqlite:PATH or mongodb://HOST/DATABASE; for this file write --store sqlite:%s", name, name)}
	default:
		return usageError{fmt.Errorf("--store %s: want sqlite:PATH, such as sqlite:./asof.db, or mongodb://HOST/DATABASE", unknownStore(name))}
	}
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// openEngine opens the store that --store names.
func (m *Main) openEngine(ctx context.Context) (driver.Engine, error) {
	if err := m.checkStore(); err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(m.flags.Store, "sqlite:"); ok {
		return m.openSQLite(ctx, path)
	}
	return m.openMongo(ctx, m.flags.Store)
}

// openStore opens the engine and gives its documents their types.
func (m *Main) openStore(ctx context.Context) (*storage.Store, error) {
	engine, err := m.openEngine(ctx)
	if err != nil {
		return nil, err
	}
	store, err := storage.New(counted(engine), m.Types, storage.WithLogger(m.logger()), storage.WithLimits(m.flags.Serve.Limits.storage()))
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return store, nil
}
