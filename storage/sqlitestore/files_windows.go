//go:build windows

package sqlitestore

import (
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// presence has nothing to find out here: the system lets nobody delete, move or
// replace a file that is open.
type presence struct{}

func (*presence) observe(*os.File, ...string) error { return nil }

func (*presence) check() error { return nil }

func (*presence) recently(time.Time) error { return nil }

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
