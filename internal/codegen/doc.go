// Package codegen turns schema.graphqls, where people name their documents,
// into the whole program around them: the expanded schema, the models and the
// resolvers.
//
// Invariants:
//
//   - [Expand] is a pure function from SDL to SDL. Everything that can be wrong
//     with what people wrote is found there, with file and line, and all of it
//     at once.
//   - What is generated depends on schema.graphqls alone: running twice gives
//     the same bytes, and a run that fails leaves every file as it was.
//   - This package imports neither graph nor resolvers nor storage, and never
//     reads the resolvers, so that broken code there cannot block regenerating.
//   - Templates render and do not decide: whatever differs between two types
//     is computed in Go and has a name.
package codegen
