//go:build windows

package sqlitestore

import (
	"os"

	"golang.org/x/sys/windows"
)

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

// lockDatabase takes no lock: there is none that is independent of SQLite's.
func lockDatabase(*os.File, bool) (taken bool, err error) { return true, nil }
