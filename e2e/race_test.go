//go:build race

package e2e

// buildFlags build the program under test as this test is built: with the race
// detector, but for SQLite, which is translated C, shares nothing with our
// goroutines, and would take many times as long.
var buildFlags = []string{"-race", "-gcflags=modernc.org/...=-race=false"}
