//go:build !linux

package sqlitestore

// manageMemory leaves SQLite's memory to its driver, see memory_linux.go.
func manageMemory() {}
