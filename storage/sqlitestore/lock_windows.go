//go:build windows

package sqlitestore

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the exclusive lock that one server holds on a store. The
// system drops it when the process ends, however it ends.
func lockFile(f *os.File) (taken bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	switch err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION:
		return false, nil
	default:
		return false, err
	}
}
