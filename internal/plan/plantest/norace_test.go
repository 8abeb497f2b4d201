//go:build !race

package plantest

const race = false

// buildFlags build a program as this test is built.
func buildFlags() []string { return nil }
