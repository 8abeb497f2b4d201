// Package constant is the yardstick of the load command: a plain gqlgen server
// whose resolvers return documents that are already in memory. No storage, no
// checks, no limits: what is left is the price of gqlgen and HTTP.
package constant

//go:generate go tool gqlgen generate
