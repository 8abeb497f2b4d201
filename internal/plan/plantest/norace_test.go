//go:build !race

package plantest

const race = false
