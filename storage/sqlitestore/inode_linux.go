package sqlitestore

import (
	"errors"
	"io"
	"os"
	"syscall"
)

const (
	// setOpenFileLock is F_OFD_SETLK of fcntl(2): a lock of the open file, not of the
	// process, whose locks are SQLite's.
	setOpenFileLock = 37
	// lockedByte is the place of the lock, where SQLite has none and no page.
	lockedByte = 1<<62 - 1
)

// lockDatabase takes a lock on the database file itself: it may have several names
// (hard links, or mounts of the one file), each with a log and a lock file of its
// own, and two servers would write over each other's pages. The file, which
// is made where there is none, must stay open for longer than SQLite's connections:
// closing it drops their locks. A system that has no such locks (a kernel before
// 3.15, some sandboxes) relies on the lock file, as others do.
func lockDatabase(path string, inspect bool) (f *os.File, taken bool, err error) {
	f, shared, err := openToLock(path, inspect)
	if err != nil {
		return nil, false, err
	}
	kind := int16(syscall.F_WRLCK)
	if shared {
		kind = syscall.F_RDLCK
	}
	lock := &syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: lockedByte, Len: 1}
	err = syscall.FcntlFlock(f.Fd(), setOpenFileLock, lock)
	if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) {
		return f, true, nil
	}
	_ = f.Close() // nothing was written to it
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		err = nil
	}
	return nil, false, err
}
