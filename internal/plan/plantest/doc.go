// Package plantest shows that plans and gqlgen's executor say the same: it makes
// random histories and random operations, asks two servers over one engine, and
// compares status, headers and body byte for byte.
//
// Invariants:
//
//   - Everything follows from a seed: histories, operations, transports and the
//     faults of the engine. A difference can be seen again.
//   - The servers are the program's own handlers (app.Main.Handler), over a real
//     engine whose clock stands (frozen.go): nothing that they may say depends on
//     when they are asked.
//   - Nothing is left out of the comparison but the order of errors of different
//     root fields, which gqlgen executes at the same time, and the header that
//     tells how the answer was made.
//   - Operations come from the schema and histories from the types' metadata, so
//     that a new type or kind of field is compared without a change here.
//   - What is found is made smaller before it is shown (shrink.go).
//
// The tests also make executors with one mistake each, which have to be found.
package plantest
