// Package transfer reads and writes the history of documents as NDJSON: one
// line of JSON for each version.
//
//	{"collection","id","at","by","message","source","op":"put"|"delete"|"prune","operation","seal","changed","data"}
//
// Invariants:
//
//   - What Export writes, Import reads. Exporting one store, importing that
//     into an empty one and exporting again gives the same bytes: the order is
//     the commit order (time, collection, id, number), members are written in
//     the order above, empty messages and sources are left out, times are
//     RFC 3339 in UTC and data is in normal form. The seal (see package seal, in
//     base64) is kept, and has to hold; a version without one gets one.
//   - Import stops at the first line that it cannot keep, and names it. What
//     came before that line is in the store, durably; the line and what follows
//     is not. Running it again skips what is there.
//   - A file that was cut off is never taken for a whole one: compressed files
//     carry checksums, and the last line of a plain one must be a whole object,
//     with a newline behind it or without.
//   - Memory does not grow with the size of the file: lines, batches and what
//     is in flight between the goroutines are bounded in bytes.
//   - A file that Export was writing when it was killed never carries the name
//     that it was asked to write.
package transfer
