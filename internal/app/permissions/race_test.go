//go:build race

package permissions

const race = true
