//go:build race

package plantest

// race says that the race detector watches: it makes everything many times
// slower, and looks for something else.
const race = true

// buildFlags build a program as this test is built: with the race detector, but
// for SQLite, which is C that was translated.
func buildFlags() []string { return []string{"-race", "-gcflags=modernc.org/...=-race=false"} }
