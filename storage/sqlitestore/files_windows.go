//go:build windows

package sqlitestore

import (
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// fileIdentity checks nothing: Windows does not allow to delete, move or replace an
// open file.
type fileIdentity struct{}

func (*fileIdentity) observe(*os.File, ...string) error { return nil }

func (*fileIdentity) check() error { return nil }

func (*fileIdentity) checkBytes(string, int64) error { return nil }

func (*fileIdentity) recently(time.Time) error { return nil }

// lockFile takes a server's exclusive lock on a store, or a shared one for inspection.
// The system drops it when the process ends, in whatever way.
func lockFile(f *os.File, shared bool) (taken bool, err error) {
	kind := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK)
	if shared {
		kind = 0
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()),
		kind|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	switch err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION:
		return false, nil
	default:
		return false, err
	}
}
