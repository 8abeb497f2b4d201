// Package container holds the tests of Dockerfile, .dockerignore and
// docker-compose.yml that need no Docker: what they name exists, what they
// copy is enough to build the program, the program that they build is static,
// and the commands and variables in them are the program's own.
package container
