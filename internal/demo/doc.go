// Package demo is a small catalogue of self-hosted software that does not
// exist, with the edits of the year 2025: what `asof serve --demo` fills an
// empty store with, so that every capability has something to show.
//
// The same versions come out every time: the tables and the story in this
// package say what happened, and what the robots count comes from a generator
// of numbers with a fixed seed.
package demo
