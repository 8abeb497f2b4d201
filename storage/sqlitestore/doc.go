// Package sqlitestore is the embedded storage engine: it implements
// driver.Engine on one SQLite file, in pure Go.
//
// Invariants:
//
//   - One process holds a file (an OS lock beside it, gone with the process),
//     and in it one goroutine writes. Concurrent commits share a transaction
//     and its fsync; a write is acknowledged only after that.
//   - The database decides every write: a document's row changes only where
//     its number is the expected one, in the statement that changes it.
//   - Table documents is the current state, table versions every version.
//     Rows of versions never change, and when a version was superseded follows
//     from the row behind it. Reads of the current state use documents alone.
//   - Commit times strictly increase across all documents, and are greater
//     than every instant that Now returned, also after a restart or a kill
//     (lease.go).
//   - Values are encoded so that bytes compare as their kinds do. Indexes,
//     filters and sorts share that encoding and so cannot disagree.
//   - An index answers as of any instant while passing over at most about
//     twice as many entries as it has (epochs.go).
//   - A transaction that fails has happened not at all: what the writer keeps
//     in memory is read again from the file.
//
// The file says which format it has; a newer one is refused. See schema.go.
package sqlitestore
