//go:build unix

package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/asof/asof/storage/driver"
)

// fileIdentity checks that the paths of an open store still name the files that were
// opened. If one was deleted or replaced, connections would continue to write into
// a file without a name: every write would succeed, and be lost with the process.
// And without the lock file of this process, another one can open the store.
//
// A missing file is an error for the rest of the process, even when it comes back:
// another process may have changed it meanwhile.
type fileIdentity struct {
	files  []knownFile
	bytes  atomic.Int64 // that the database had, when that was looked at last
	missed atomic.Pointer[driver.Error]
	looked time.Time // by the writer
}

// checkInterval is how often the writer checks. Writes that were acknowledged since
// the last check are lost with the file, like all earlier ones.
const checkInterval = time.Second

type knownFile struct {
	name string
	is   os.FileInfo // device and inode
}

// observe notes the files of an open store: its lock, if not nil, the database,
// and its log if it has one. The shared memory file is not needed: it is opened by
// name only by other processes, which the lock prevents.
func (p *fileIdentity) observe(lock *os.File, names ...string) error {
	var files []knownFile
	if lock != nil {
		is, err := lock.Stat()
		if err != nil {
			return driver.Errorf(driver.CodeUnavailable, "cannot look at %s: %w", lock.Name(), err)
		}
		files = append(files, knownFile{lock.Name(), is})
	}
	for _, name := range names {
		is, err := os.Stat(name)
		if err != nil {
			return driver.Errorf(driver.CodeUnavailable, "cannot look at %s: %w", name, err)
		}
		files = append(files, knownFile{name, is})
		if name == names[0] {
			p.bytes.Store(is.Size())
		}
	}
	p.files = files
	return nil
}

// check returns an error with CodeUnavailable when a file was removed or replaced.
// It takes some microseconds.
func (p *fileIdentity) check() error {
	if missed := p.missed.Load(); missed != nil {
		return missed
	}
	for _, file := range p.files {
		var what string
		switch is, err := os.Stat(file.name); {
		case errors.Is(err, fs.ErrNotExist):
			what = "deleted or moved away"
		case err != nil: // it may be temporary
			return driver.Refused("the store takes no writes now: its file cannot be looked at",
				driver.Errorf(driver.CodeUnavailable, "cannot look at %s, and without that nothing is written: %w", file.name, err))
		case !os.SameFile(is, file.is):
			what = "replaced"
		default:
			continue
		}
		return p.miss(file.name, what)
	}
	return nil
}

// checkBytes is check of the database's size, where its pages take so many bytes: those that
// were in the file are there. Newer ones may be in the log only.
func (p *fileIdentity) checkBytes(name string, pages int64) error {
	had := p.bytes.Load()
	is, err := os.Stat(name)
	switch {
	case err != nil:
		return p.check()
	case is.Size() < min(had, pages):
		return p.miss(name, "cut off")
	}
	p.bytes.Store(is.Size())
	return nil
}

// miss notes what happened to a file, and returns the error.
func (p *fileIdentity) miss(name, what string) error {
	p.missed.CompareAndSwap(nil, driver.Refused("the store takes no writes: its file was removed, replaced or cut off",
		driver.Errorf(driver.CodeUnavailable, "%s", missedText(name, what))))
	return p.missed.Load()
}

// recently is check at most once in checkInterval, for the writer.
func (p *fileIdentity) recently(now time.Time) error {
	if age := now.Sub(p.looked); p.missed.Load() == nil && age >= 0 && age < checkInterval {
		return nil
	}
	if err := p.check(); err != nil {
		return err
	}
	p.looked = now
	return nil
}

func missedText(name, what string) string {
	return fmt.Sprintf("the file %s was %s while the store is open; nothing is written any more, as it would be lost. "+
		"What is in the store can still be read until this process ends. End it, put the files of the store in place, and start it again", name, what)
}

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
