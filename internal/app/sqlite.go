package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// openSQLite opens the store in a file, and makes one where the command may.
func (m *Main) openSQLite(ctx context.Context, path string) (driver.Engine, error) {
	if !m.makesStore() {
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, usageError{fmt.Errorf("there is no store at %s (see --store)", path)}
		case err == nil && info.Size() == 0 && info.Mode().IsRegular() && isEmpty(path+"-wal"):
			return nil, fmt.Errorf("%s is an empty file, and no store (see --store); if it was one, restore it from a backup", path)
		}
	}
	return sqlitestore.Open(ctx, path, m.sqliteOptions())
}

// onlyReads reports whether the command leaves the store as it is.
func (m *Main) onlyReads() bool { return !m.makesStore() && !m.flags.Check.Repair }

// makesStore reports whether the command makes a store where there is none.
func (m *Main) makesStore() bool { return m.command == "serve" || m.command == "import <file>" }

func (m *Main) sqliteOptions() sqlitestore.Options {
	sync := syncs[m.flags.Sync]
	if m.command == "import <file>" && sync == sqlitestore.SyncFull {
		// An import is acknowledged as a whole, when the store is closed, which
		// syncs. What a loss of power takes before that is added by the next run.
		sync = sqlitestore.SyncNormal
	}
	return sqlitestore.Options{
		Inspect:      m.onlyReads(),
		Repair:       m.flags.Check.Repair,
		Collections:  storage.CollectionsOf(m.Types),
		Sync:         sync,
		Clock:        m.Now,
		Logger:       m.logger(),
		VersionCache: int(m.flags.Serve.VersionCache),
	}
}

// isEmpty reports whether a file is not there, or holds nothing.
func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// isStore reports whether a name is one of the store's file, or of those that are
// beside it while it is open.
func (m *Main) isStore(name string) bool {
	path, ok := strings.CutPrefix(m.flags.Store, "sqlite:")
	if !ok {
		return false
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	switch rest, beside := strings.CutPrefix(filepath.Base(name), filepath.Base(path)); {
	case beside && slices.Contains([]string{"-wal", "-shm", ".lock"}, rest):
		return isSameFile(filepath.Dir(name), filepath.Dir(path))
	default:
		return isSameFile(name, path)
	}
}

func isSameFile(name, other string) bool {
	one, err := os.Stat(name)
	if err != nil {
		return false
	}
	two, err := os.Stat(other)
	return err == nil && os.SameFile(one, two)
}

// newFile is the file that opening the store will make; "" where it is there, or
// is not in a file.
func (m *Main) newFile() string {
	path, ok := strings.CutPrefix(m.flags.Store, "sqlite:")
	if !ok {
		return ""
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// removeStore removes the files of a store that is closed; "": none.
func removeStore(path string) error {
	if path == "" {
		return nil
	}
	var errs []error
	for _, suffix := range [...]string{"", "-wal", "-shm", ".lock"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var syncs = map[string]sqlitestore.Sync{
	"full":   sqlitestore.SyncFull,
	"normal": sqlitestore.SyncNormal,
	"off":    sqlitestore.SyncOff,
}
