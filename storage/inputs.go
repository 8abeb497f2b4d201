package storage

import "github.com/asof/asof/storage/driver"

// OrderDirection is ASC or DESC.
type OrderDirection string

// The directions.
const (
	Asc  OrderDirection = "ASC"
	Desc OrderDirection = "DESC"
)

// OrderInput is one sort field: a field's name, or key, version, recordedAt.
type OrderInput struct {
	Field     string
	Direction OrderDirection // empty: ASC
}

// ConflictPolicy says what an update does when the document has moved on.
type ConflictPolicy string

// The policies.
const (
	Reject ConflictPolicy = "REJECT" // return the conflict
	Merge  ConflictPolicy = "MERGE"  // apply the patch if no path overlaps
)

// CreateInput makes a document that does not exist.
type CreateInput struct {
	Key              string
	Data             map[string]any
	Message          *string
	ClientMutationID *string
}

// UpdateInput patches a document: an absent field is untouched, null clears it,
// nested objects are merged, lists and JSON are replaced.
type UpdateInput struct {
	Key              string
	ExpectedVersion  int
	Patch            map[string]any
	Message          *string
	OnConflict       *ConflictPolicy // nil: Reject
	ClientMutationID *string
}

// DeleteInput deletes a document.
type DeleteInput struct {
	Key              string
	ExpectedVersion  int
	Message          *string
	ClientMutationID *string
}

// RestoreInput writes the state of an earlier version as a new version.
type RestoreInput struct {
	Key             string
	ExpectedVersion int
	To              *VersionRef
	// Paths are JSON Pointers in the names of the GraphQL schema; nil restores
	// the whole document.
	Paths            []string
	Message          *string
	ClientMutationID *string
}

// ChangelogWhere selects changes. All conditions hold together, also a singular
// and its plural. Nil asks for everything, a list without elements for nothing.
type ChangelogWhere struct {
	DocumentType []string // type names
	Key          *string  // needs exactly one document type, as does Keys
	Keys         []string
	Field        *string // GraphQL names of top-level fields
	Fields       []string
	Author       *string
	Authors      []string
	From         *driver.Instant // inclusive
	To           *driver.Instant // exclusive
	Operation    []Operation
	ChangeGroup  *string
}
