// Package admission decides which operations are executed now, and how much memory
// all requests together may hold.
//
// Invariants:
//
//   - A [Gate] has lanes: operations that are known to be short do not wait behind those
//     that take long, however many of these there are, and those that write, and wait for
//     the disk, not behind either.
//   - Where several wait for a place, the client that has used the least gets it.
//   - A [Budget] never grants more than its total, and never more than half of it to one
//     client.
//   - It knows no HTTP and no GraphQL: clients and operations are names.
package admission
