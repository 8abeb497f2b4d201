// Package audit holds the GraphQL over HTTP audits of the npm package
// graphql-http, and the test that runs them against this program:
//
//	cd internal/audit && npm ci && go test .
//
// The test is skipped while the npm package is not installed.
package audit
