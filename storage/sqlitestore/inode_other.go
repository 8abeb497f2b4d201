//go:build !linux

package sqlitestore

import "os"

// lockDatabase relies on the lock file: other systems have no lock of an open file
// that leaves SQLite's alone. It makes the file where there is none.
func lockDatabase(path string, inspect bool) (_ *os.File, taken bool, err error) {
	f, _, err := openToLock(path, inspect)
	if err == nil {
		err = f.Close() // nothing was written to it
	}
	return nil, true, err
}
