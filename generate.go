package main

//go:generate go run ./internal/codegen/cmd
