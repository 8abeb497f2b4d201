// Package storage gives documents their past. It holds all temporal meaning
// that does not need a database: instants, pinned ids, cursors, filters,
// changelogs, blame, diffs and writes; an engine of package driver keeps the
// bytes.
//
// Invariants:
//
//   - A document's stored bytes are never decoded as a whole to be read. They
//     are indexed once, and single values are read straight from them.
//   - Everything that one operation reads without naming a time is read at one
//     instant, chosen by Begin. Root fields do not influence each other.
//   - What was read at an instant never shows a later write: not in fields, not
//     in versionInfo, not in histories.
//   - Every write is decided by the engine's compare-and-swap. What this
//     package compares before it only saves work.
//   - Paths and names that users see are those of the GraphQL schema. Members
//     that the schema does not declare are kept and never shown.
//   - Errors are *Error: the message is for users, the cause is for operators.
package storage
