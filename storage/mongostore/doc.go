// Package mongostore keeps versions in MongoDB.
//
// There is one document for each document, with its newest versions inside:
//
//	{_id: key, current: {version}, prev: [{version}, …], n: len(prev), size: bytes of prev}
//
// and, in a collection beside it, runs of the older ones:
//
//	{_id: {k: key, n: first number}, k, n, last: last number, from, to: interval, vs: [{version}, …]}
//
// A document without current is a placeholder, see there. What a version looks
// like, and what filters see of it, is in version.go.
//
// Invariants:
//
//   - A commit is one atomic update of one document, on condition that its
//     current.v is what the writer based it on. The database compares; nothing
//     is decided by what was read before. One of several documents is a
//     transaction of such updates (see transact), where there are any.
//   - A version never changes, except that it gets the time at which it was
//     superseded (to) when it moves from current to prev. It moves on to a run,
//     oldest first, when prev would pass its bounds. The run is written before
//     the update that drops its versions from prev, so that a crash in between
//     leaves a copy and no gap.
//   - Every version has the ID of the write that made it. A write with an
//     unknown outcome is looked up by it, and tried again on the same
//     condition, until its outcome is certain: it is never applied twice.
//   - Data is stored as the very JSON that was given, so that exports have the
//     same bytes whatever the engine. The search form beside it can be made
//     from it again at any time, and is never read back.
//   - All writes are acknowledged by a majority with their journal, and reads
//     see only what a majority has, so that nothing read is ever rolled back.
//   - An instant that was handed out, to a reader or as a commit's time, is before
//     every later commit of any server on the database (see clock), and a
//     commit's time is after that of the version it replaces.
//   - What is loaded of a document is the first of its versions, in order.
package mongostore
