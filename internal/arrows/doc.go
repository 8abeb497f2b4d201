// Package arrows holds the test that imports point one way: which packages of the
// module each of them may know, and who may speak GraphQL, HTTP, SQLite and
// MongoDB. The linter's rules (.golangci.yml) are tried with every import that
// there could be, and the module's own imports are compared with the same table,
// so that a package that is added has to be given its place.
package arrows
