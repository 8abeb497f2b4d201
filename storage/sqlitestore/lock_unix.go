//go:build unix

package sqlitestore

import (
	"os"
	"syscall"
)

// lockFile takes the exclusive lock that one server holds on a store. The
// system drops it when the process ends, however it ends.
func lockFile(f *os.File) (taken bool, err error) {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return true, nil
	case syscall.EWOULDBLOCK:
		return false, nil
	default:
		return false, err
	}
}
