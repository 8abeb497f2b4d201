// Package drivertest proves that a storage engine does what package driver
// says. An engine's whole test file is a harness and one call of Run.
//
// The oracle is a naive engine in memory (NewModel), which is also what tests
// of the code above an engine run on. The suite performs the same random
// operations on both and compares every read; it evaluates random filters
// with an evaluator that shares no code with any engine; and it has one named
// test for each rule of the contract.
//
// Invariants: a test never asserts what the contract leaves open; it prints
// what is needed to repeat a failure (the seed, the operation, the documents);
// it never sleeps and never depends on the speed of the machine.
package drivertest
