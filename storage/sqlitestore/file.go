package sqlitestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/asof/asof/storage/driver"
)

// lease is a bound of the instants that were handed out to readers, noted in the
// lock file before it is used. After a process was killed, commits get times after
// the lease: otherwise, if the clock was set back meanwhile, a commit could get an
// instant that was read at and is in no table. A clock that was not set back
// passes the lease within clock.Bound; until then the store's clock is ahead of
// it, and repeated kills do not add up.
//
// Noting it is a write without sync: it survives the end of the process, like the
// lock. After a power cut, the times of commits are safe; those of reads are as far
// as the system had written the note. The note is not in a table, so
// that a reader waits neither for the writer nor for the disk.
type lease struct {
	file io.WriterAt
	log  *slog.Logger
	// failed is the last error that was logged, so that a broken disk is
	// reported once and not by every read.
	failed string
}

// The note is the instant and its complement, so that other content is recognised.
const leaseBytes = 16

// extend moves the lease to an instant. A failure is logged and reads continue:
// they are then not protected from a kill followed by a clock that is set back.
func (l *lease) extend(until driver.Instant) {
	err := l.note(until)
	text := fmt.Sprint(err)
	if err != nil && text != l.failed {
		l.log.Error("noting up to which instant was read failed; if the process is killed and the clock set back, a commit may get a time that was read at", "error", err)
	}
	l.failed = text
}

func (l *lease) note(t driver.Instant) error {
	var note [leaseBytes]byte
	binary.BigEndian.PutUint64(note[:8], uint64(t))
	binary.BigEndian.PutUint64(note[8:], ^uint64(t))
	_, err := l.file.WriteAt(note[:], 0)
	return err
}

// readLease returns the lease of an earlier process; 0 if it closed the store, or
// if there was none.
func readLease(f *os.File) (driver.Instant, error) {
	var note [leaseBytes]byte
	if _, err := f.ReadAt(note[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil // a new lock file
		}
		return 0, driver.Errorf(driver.CodeUnavailable, "cannot read %s: %w", f.Name(), err)
	}
	t := binary.BigEndian.Uint64(note[:8])
	if binary.BigEndian.Uint64(note[8:]) != ^t || t >= uint64(driver.Forever) {
		return 0, nil
	}
	return driver.Instant(t), nil
}

// realPath resolves symbolic links, as SQLite does, so that one file has one lock
// and one log.
func realPath(path string) (string, error) {
	switch path {
	case "":
		return "", invalidf("the path of the store is empty")
	case ":memory:":
		return "", invalidf("a store is kept in a file; name one, such as asof.db")
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return "", invalidf("%s is a symbolic link to a file that is not there", path)
	}
	return path, nil // a new file
}

// newFile is the mode of new files: only their owner can read them. SQLite gives the
// files beside the database the same mode.
const newFile = 0o600

// acquire takes the lock that keeps a second server away from a database. It is a
// separate file, because closing any handle of the database would drop
// SQLite's own locks on it. For inspection in a directory where no file can be
// created, the lock file may be absent: then no server has the store open either.
func acquire(path string, inspect bool) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, invalidf("%s is a directory; name a file in it, such as %s", path, filepath.Join(path, "asof.db"))
	}
	name := path + ".lock"
	f, shared, err := openToLock(name, inspect)
	switch {
	case shared && errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, os.ErrNotExist):
		if _, missing := os.Stat(filepath.Dir(path)); missing == nil {
			return nil, driver.Errorf(driver.CodeInvalid, "no file can be made in the directory %s: %w", filepath.Dir(path), err)
		}
		return nil, driver.Errorf(driver.CodeInvalid, "there is no directory %s: %w", filepath.Dir(path), err)
	case shared && err != nil:
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot find out whether a server uses the store: %w", err)
	case err != nil:
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot write in the directory of the store: %w; a server locks a file there, also one that only reads: make the directory writable, or serve a copy", err)
	}
	taken, err := lockFile(f, shared)
	if taken {
		return f, nil
	}
	_ = f.Close() // nothing was written to it
	if err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot lock %s: %w", name, err)
	}
	return nil, errUsed(path, "")
}

// openToLock opens a file that will be locked, and creates it if it is absent. For
// inspection, a file that cannot be written is opened for reading, which is enough
// for a shared lock.
func openToLock(name string, inspect bool) (f *os.File, shared bool, err error) {
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, newFile)
	if inspect && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		f, err = os.Open(name)
		return f, true, err
	}
	return f, false, err
}

func errUsed(path, how string) error {
	return driver.Errorf(driver.CodeUnavailable, "%s: another process is using it%s, such as a running server; stop that one, or name another store", path, how)
}

// acquireDatabase takes a lock on the database itself, against servers that open the same
// file by another name: hard links, or mounts, each with its own log and lock file, so that
// they would overwrite each other's pages. It is taken before SQLite creates a log for the
// name. The file must stay open for longer than SQLite's connections, because closing it
// drops their locks.
func acquireDatabase(path string, inspect bool) (*os.File, error) {
	f, shared, err := openToLock(path, inspect)
	if err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot lock %s: %w", path, err)
	}
	taken, err := lockDatabase(f, shared)
	if taken {
		return f, nil
	}
	_ = f.Close() // nothing was written to it
	if err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable, "cannot lock %s: %w", path, err)
	}
	return nil, errUsed(path, " by another name (a link, or a mount of the file)")
}

// isOpen reports whether a file is in use or was not closed: part of its content is
// in a log beside it.
func isOpen(path string) bool {
	for _, log := range [...]string{path + "-wal", path + "-journal"} {
		if info, err := os.Stat(log); err == nil && info.Size() > 0 {
			return true
		}
	}
	return false
}

// fileIdentity checks that the paths of an open store still name the files that were
// opened. If one was deleted or replaced, connections would continue to write into
// a file without a name: every write would succeed, and be lost with the process.
// And without the lock file of this process, another one can open the store.
//
// A missing file is an error for the rest of the process, even when it comes back:
// another process may have changed it meanwhile.
type fileIdentity struct {
	files  map[string]os.FileInfo
	missed atomic.Pointer[driver.Error]
}

// observe notes the files of an open store: its lock, the database, and its log if it
// has one. The shared memory file is not needed: it is opened by name only by other
// processes, which the lock prevents.
func (p *fileIdentity) observe(names ...string) error {
	p.files = map[string]os.FileInfo{}
	for _, name := range names {
		is, err := os.Stat(name)
		if err != nil {
			return driver.Errorf(driver.CodeUnavailable, "cannot look at %s: %w", name, err)
		}
		p.files[name] = is
	}
	return nil
}

// check returns an error with CodeUnavailable when a file was removed or replaced.
// It takes some microseconds, and the writer calls it before each transaction.
func (p *fileIdentity) check() error {
	if missed := p.missed.Load(); missed != nil {
		return missed
	}
	for name, was := range p.files {
		what := "replaced"
		switch is, err := os.Stat(name); {
		case errors.Is(err, fs.ErrNotExist):
			what = "deleted or moved away"
		case err != nil: // it may be temporary
			return driver.Refused("the store takes no writes now: its file cannot be looked at",
				driver.Errorf(driver.CodeUnavailable, "cannot look at %s, and without that nothing is written: %w", name, err))
		case os.SameFile(is, was):
			continue
		}
		p.missed.CompareAndSwap(nil, driver.Refused("the store takes no writes: its file was removed or replaced",
			driver.Errorf(driver.CodeUnavailable, "the file %s was %s while the store is open; nothing is written any more, as it would be lost. "+
				"What is in the store can still be read until this process ends. End it, put the files of the store in place, and start it again", name, what)))
		return p.missed.Load()
	}
	return nil
}
