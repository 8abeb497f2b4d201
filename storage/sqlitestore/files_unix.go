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

// presence finds out whether the files of an open store are still the ones that
// its path names. Where somebody deleted or replaced one, connections go on
// writing into what has no name any more: every write would succeed, and all of
// them be gone with the process. And without the lock file of this process,
// another one can open the store.
//
// A file that was missed once stays missed, also when it comes back: another
// process may have changed it meanwhile.
type presence struct {
	files  []presentFile
	missed atomic.Pointer[driver.Error]
	looked time.Time // by the writer
}

// presenceAge is for how long a writer trusts that the files are there. What
// was acknowledged in that time is gone, as is what was acknowledged before.
const presenceAge = time.Second

type presentFile struct {
	name string
	is   os.FileInfo // device and inode
}

// observe notes which files an open store has: its lock, if not nil, the database,
// and its log where it has one. The shared memory beside them is used by name only
// where another process opens the database, which the lock prevents.
func (p *presence) observe(lock *os.File, names ...string) error {
	var files []presentFile
	if lock != nil {
		is, err := lock.Stat()
		if err != nil {
			return driver.Errorf(driver.CodeUnavailable, "cannot look at %s: %w", lock.Name(), err)
		}
		files = append(files, presentFile{lock.Name(), is})
	}
	for _, name := range names {
		is, err := os.Stat(name)
		if err != nil {
			return driver.Errorf(driver.CodeUnavailable, "cannot look at %s: %w", name, err)
		}
		files = append(files, presentFile{name, is})
	}
	p.files = files
	return nil
}

// check returns an error with CodeUnavailable when a file is not there any
// more, or is another one. It costs some microseconds.
func (p *presence) check() error {
	if missed := p.missed.Load(); missed != nil {
		return missed
	}
	for _, file := range p.files {
		var what string
		switch is, err := os.Stat(file.name); {
		case errors.Is(err, fs.ErrNotExist):
			what = "deleted or moved away"
		case err != nil: // perhaps not for long
			return driver.Refused("the store takes no writes now: its file cannot be looked at",
				driver.Errorf(driver.CodeUnavailable, "cannot look at %s, and without that nothing is written: %w", file.name, err))
		case !os.SameFile(is, file.is):
			what = "replaced"
		default:
			continue
		}
		p.missed.CompareAndSwap(nil, driver.Refused("the store takes no writes: its file was removed or replaced",
			driver.Errorf(driver.CodeUnavailable, "%s", missedText(file.name, what))))
		return p.missed.Load()
	}
	return nil
}

// recently is check for the writer, who looks once in presenceAge.
func (p *presence) recently(now time.Time) error {
	if age := now.Sub(p.looked); p.missed.Load() == nil && age >= 0 && age < presenceAge {
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
