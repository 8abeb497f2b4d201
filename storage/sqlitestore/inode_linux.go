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
	// lockedByte is the position of the lock, where SQLite has neither locks nor pages.
	lockedByte = 1<<62 - 1
)

// lockDatabase takes a lock on the database file itself. The file may have several
// names (hard links, or mounts), each with its own log and lock file, and two
// servers would overwrite each other's pages. The file is created if it is absent,
// and must stay open for longer than SQLite's connections, because closing it drops
// their locks. Linux without such locks (before 3.15, some sandboxes) relies on the
// lock file, like other systems.
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
