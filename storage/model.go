package storage

import (
	"context"

	"github.com/asof/asof/storage/driver"
)

// Node is anything with a global id: every model that embeds *Document.
type Node interface {
	IsNode()
	ID() string
}

// AnyDocument is a document of any type: every model that embeds *Document.
type AnyDocument interface {
	Node
	IsDocument()
	Key() string
	Version() int
	VersionInfo() *VersionInfo
}

// PageInfo says where a page lies in its list.
type PageInfo struct {
	HasNextPage     bool
	HasPreviousPage bool
	elements        int
	cursor          func(place int) string
}

// StartCursor is the cursor of the page's first edge; nil when it is empty.
func (p *PageInfo) StartCursor() *string { return p.cursorOf(0) }

// EndCursor is the cursor of the page's last edge; nil when it is empty.
func (p *PageInfo) EndCursor() *string { return p.cursorOf(p.elements - 1) }

func (p *PageInfo) cursorOf(place int) *string {
	if p.elements == 0 {
		return nil
	}
	s := p.cursor(place)
	return &s
}

// counter counts a list when it is asked to, and only then.
type counter func(ctx context.Context) (int, error)

// Connection is a page of a list.
type Connection[T any] struct {
	Edges    []*Edge[T]
	Nodes    []T
	PageInfo *PageInfo
	count    counter
	changes  func(place int) ([]*FieldChange, error) // of a list of versions
}

// TotalCount counts the whole list, at the instant of its pages.
func (c *Connection[T]) TotalCount(ctx context.Context) (int, error) { return c.count(ctx) }

// Edge is an element of a page. Its cursor, and the changes of a version, are made when asked for.
type Edge[T any] struct {
	Node  T
	page  *Connection[T]
	place int
}

// Cursor is the place of the edge, for after and before.
func (e *Edge[T]) Cursor() string { return e.page.PageInfo.cursor(e.place) }

// Changes are the differences of a version from the one before.
func (e *Edge[T]) Changes() ([]*FieldChange, error) { return e.page.changes(e.place) }

// connection makes a page of n elements.
func connection[T any](n int, info PageInfo, count counter, cursor func(place int) string, node func(place int) T) *Connection[T] {
	info.elements, info.cursor = n, cursor
	c := &Connection[T]{Edges: make([]*Edge[T], n), Nodes: make([]T, n), PageInfo: &info, count: count}
	edges := make([]Edge[T], n)
	for i := range n {
		c.Nodes[i] = node(i)
		edges[i] = Edge[T]{c.Nodes[i], c, i}
		c.Edges[i] = &edges[i]
	}
	return c
}

type (
	// VersionConnection is a page of the versions of a document, newest first. The node of a tombstone
	// shows the state that was deleted; its versionInfo says that the operation was DELETE.
	VersionConnection[T any] = Connection[T]
	// VersionEdge is one of them.
	VersionEdge[T any] = Edge[T]
	// FieldChangeConnection is a page of changes, newest version first; the changes
	// of one version are in the order in which they can be applied.
	FieldChangeConnection = Connection[*FieldChange]
	// FieldChangeEdge is one of them.
	FieldChangeEdge = Edge[*FieldChange]
)

// History is the way to a document's past, also when it is deleted. The
// embedded Document is its last version, which may be a tombstone.
type History[T any] struct {
	*Document
	// Current is the document as it is now; the zero T when it is deleted.
	Current T
}

// Success is what a write that was not in conflict returns.
type Success[T any] struct {
	// Document is the document after the write; of a delete, as it was before.
	Document T
	Version  int // the document's last version now
	// DeletedID is the document's id without a version, for caches to forget it by; nil
	// where it was not deleted.
	DeletedID *string
	// Changed is false when the write would have changed nothing; then there is
	// no new version.
	Changed bool
	// Merged says that the patch was applied to a newer version than expected.
	Merged           bool
	ClientMutationID *string
	changes          func() ([]*FieldChange, error)
}

// Changes lists what the write changed.
func (s *Success[T]) Changes() ([]*FieldChange, error) { return s.changes() }

// Conflict is a write that found another version than it expected. Nothing was
// written.
type Conflict[T any] struct {
	Key             string // of the document
	Message         string
	ExpectedVersion int
	ActualVersion   int // 0: the document never existed
	Current         T   // zero when the document does not exist now
	Base            T   // the expected version; zero when there is none
	// OverlappingPaths are those paths of the patch that were changed since to
	// something else.
	OverlappingPaths []string
	// Mergeable says that the patch could be applied with onConflict: MERGE.
	Mergeable bool
	since     func(ctx context.Context) ([]*FieldChange, error)
}

// ChangesSince lists what was changed after the expected version, oldest first,
// read when asked for; the newest 1,000 changes if there are more.
func (c *Conflict[T]) ChangesSince(ctx context.Context) ([]*FieldChange, error) { return c.since(ctx) }

// VersionConflict is a Conflict of any type of documents.
type VersionConflict interface{ IsVersionConflict() }

// IsVersionConflict marks the GraphQL interface VersionConflict.
func (c *Conflict[T]) IsVersionConflict() {}

// Operation is what made a version.
type Operation string

// The operations.
const (
	OperationCreate  Operation = "CREATE"
	OperationUpdate  Operation = "UPDATE"
	OperationDelete  Operation = "DELETE"
	OperationRestore Operation = "RESTORE"
	OperationImport  Operation = "IMPORT"
	OperationErase   Operation = "ERASE"
)

// VersionRef names a version: by number, or as the one that was current at an
// instant. Exactly one is set.
type VersionRef struct {
	Version *int
	AsOf    *driver.Instant
}

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
