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
//   - Table documents holds the current state, table versions every version.
//     Rows of versions never change, and a version was superseded at the time of
//     the next row. Reads of the current state use documents alone.
//   - Commit times strictly increase across all documents, and are greater
//     than every instant that Now returned, also after a restart or a kill
//     (file.go).
//   - Values are encoded so that bytes compare as their kinds do. Indexes,
//     filters and sorts share that encoding and so cannot disagree.
//   - A read of an index as of any instant examines at most about twice the
//     entries that it returns (entries.go).
//   - A transaction that fails changes nothing: the state that the writer keeps in
//     memory is read again from the file.
//
// The file has a format number; a newer one is refused. See schema.go.
package sqlitestore
