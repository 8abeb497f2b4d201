//go:build unix

package sqlitestore

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
)

// lockFile takes a server's exclusive lock on a store, or a shared one for inspection.
// The system drops it when the process ends, in whatever way.
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

const (
	// setOpenFileLock is F_OFD_SETLK of fcntl(2) on Linux: a lock of the open file, not of the
	// process, whose locks are SQLite's.
	setOpenFileLock = 37
	// lockedByte is the position of the lock, where SQLite has neither locks nor pages.
	lockedByte = 1<<62 - 1
)

// lockDatabase takes a lock on the database file, exclusive or shared, that is independent of
// SQLite's. Systems without such locks (others, Linux before 3.15, some sandboxes) rely on the
// lock file.
func lockDatabase(f *os.File, shared bool) (taken bool, err error) {
	if runtime.GOOS != "linux" {
		return true, nil
	}
	kind := int16(syscall.F_WRLCK)
	if shared {
		kind = syscall.F_RDLCK
	}
	lock := &syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: lockedByte, Len: 1}
	err = syscall.FcntlFlock(f.Fd(), setOpenFileLock, lock)
	switch {
	case err == nil, errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS):
		return true, nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EACCES):
		return false, nil
	}
	return false, err
}
