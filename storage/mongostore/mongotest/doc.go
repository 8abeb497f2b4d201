// Package mongotest gives tests a MongoDB server, or a bad one.
//
//   - [NewServer] is the server that ASOF_TEST_MONGODB_URI names, with databases of
//     tests' own; without one, tests are skipped.
//   - [Needs] skips a test, by name, that needs what the server has not.
//   - [Proxy] stands between a client and a server, and answers chosen commands
//     itself, late, or not at all.
//
// The package knows nothing of the engine, so that tests inside of it can use it.
package mongotest
