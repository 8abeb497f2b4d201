package app

import "strings"

// weight is what a field costs beside what it returns, in fields: it reads
// versions and compares them with each other. parent and result are the names of
// the types that the field belongs to and leads to.
func weight(parent, field, result string) int {
	const (
		history  = 20  // a page of what happened
		compared = 20  // two versions
		edge     = 10  // a version and the one before
		blame    = 50  // back to the version that explains the last value
		versions = 100 // all of one document, counted
		changes  = 500 // all of them, compared and counted
	)
	switch {
	case result == "FieldChangeConnection":
		return history
	case result == "DocumentDiff":
		return compared
	case result == "FieldBlame":
		return blame
	case result == "FieldChange" && strings.HasSuffix(parent, "VersionEdge"):
		return edge
	case field == "totalCount" && parent == "FieldChangeConnection":
		return changes
	case field == "totalCount" && strings.HasSuffix(parent, "VersionConnection"):
		return versions
	default:
		return 0
	}
}
