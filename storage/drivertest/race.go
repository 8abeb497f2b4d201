//go:build race

package drivertest

// raced says that the race detector is on, which makes everything many times
// slower: the random tests that use one goroutine then try less.
const raced = true
