//go:build !linux

package sqlitestore

import "os"

// lockDatabase takes no lock: other systems have no lock of an open file that is
// independent of SQLite's, and rely on the lock file. It creates the file if absent.
func lockDatabase(path string, inspect bool) (_ *os.File, taken bool, err error) {
	f, _, err := openToLock(path, inspect)
	if err == nil {
		err = f.Close() // nothing was written to it
	}
	return nil, true, err
}
