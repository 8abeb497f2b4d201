//go:build race

package plantest

// race says that the race detector watches: it makes everything many times
// slower, and looks for something else.
const race = true
