//go:build windows

package sqlitestore

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the lock that one server holds on a store, or many who only read
// share. The system drops it when the process ends, however it ends.
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
