//go:build unix

package sqlitestore

import (
	"os"
	"syscall"
)

// lockFile takes the lock that one server holds on a store, or many who only read
// share. The system drops it when the process ends, however it ends.
func lockFile(f *os.File, shared bool) (taken bool, err error) {
	kind := syscall.LOCK_EX
	if shared {
		kind = syscall.LOCK_SH
	}
	switch err := syscall.Flock(int(f.Fd()), kind|syscall.LOCK_NB); err {
	case nil:
		return true, nil
	case syscall.EWOULDBLOCK:
		return false, nil
	default:
		return false, err
	}
}
