package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// openSQLite opens the store in a file. Commands that only read do not make one.
func (m *Main) openSQLite(ctx context.Context, path string) (driver.Engine, error) {
	if m.command != "serve" && m.command != "import <file>" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, usageError{fmt.Errorf("there is no store at %s (see --store)", path)}
		}
	}
	return sqlitestore.Open(ctx, path, sqlitestore.Options{
		Collections: storage.CollectionsOf(model.Types),
		Sync:        syncs[m.flags.Sync],
		Clock:       m.Now,
		Logger:      m.logger(),
	})
}

var syncs = map[string]sqlitestore.Sync{
	"full":   sqlitestore.SyncFull,
	"normal": sqlitestore.SyncNormal,
	"off":    sqlitestore.SyncOff,
}
