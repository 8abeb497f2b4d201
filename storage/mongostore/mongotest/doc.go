// Package mongotest gives tests a MongoDB server, or a bad one.
//
//   - [URI] is the server that the environment names, or one that [Main]
//     started; [Start] and [New] run mongod processes of their own, one node or
//     three, and kill, restart and step them down.
//   - [Requires] asks a server whether it can do what a test needs, and skips
//     the test, by the capability's name, where it cannot.
//   - [Proxy] stands between a client and a server, and answers chosen commands
//     itself, late, or not at all.
//
// The environment:
//
//	ASOF_TEST_MONGODB_URI   a running server, such as mongodb://127.0.0.1:27017
//	ASOF_TEST_MONGOD        a mongod binary, to start servers with
//
// Invariants: servers listen on the loopback interface only, on ports that were
// free; their data is in a temporary directory of their own; none outlives the
// process that started it, not even when that is killed; and what they logged
// is shown when the test fails.
//
// The package knows nothing of the engine, so that tests inside of it can use it.
package mongotest
