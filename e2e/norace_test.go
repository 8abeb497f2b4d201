//go:build !race

package e2e

// buildFlags build the program under test as this test is built.
var buildFlags []string
