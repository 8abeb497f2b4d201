// Package capture makes histories of the documents that other programs write to a collection of
// MongoDB.
//
// Invariants:
//
//   - Nothing is written to the source.
//   - The time of a version is that of the change in the source, in the source's order: its second,
//     and as many microseconds as operations had been in that. What a transaction did to a
//     document is one version. So the store as of such an instant is the source as it was then.
//   - The same change makes the same version, so that a change may be read again: how far the source
//     was read is noted in the store after what it is about.
//   - A document's history begins with the state in which it was found, or with its insertion.
//     What the stream tells of it up to then is left out.
//   - An update is applied to the version before; the source is never asked for the present state.
//   - Memory is bounded by what the source returns at once (mongostore.Source), and by loadBytes.
package capture
