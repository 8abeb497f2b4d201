//go:build !linux

package sqlitestore

import "os"

// lockDatabase relies on the lock file: other systems have no lock of an open file
// that leaves SQLite's alone.
func lockDatabase(string) (f *os.File, taken bool, err error) { return nil, true, nil }
