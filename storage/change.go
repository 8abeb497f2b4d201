package storage

import (
	"encoding/json"

	"github.com/asof/asof/storage/driver"
)

// ChangeOp is what happened to a value, as in RFC 6902.
type ChangeOp string

// The change operations.
const (
	ChangeAdd     ChangeOp = "ADD"
	ChangeReplace ChangeOp = "REPLACE"
	ChangeRemove  ChangeOp = "REMOVE"
)

// FieldChange is one changed value. The changes of one version, in order, are a
// JSON Patch from the version before.
type FieldChange struct {
	Path     string // JSON Pointer (RFC 6901) in GraphQL names
	Field    string // the top-level field's GraphQL name
	Op       ChangeOp
	OldValue json.RawMessage // nil: there was none
	NewValue json.RawMessage // nil: there is none

	store *Store
	typ   *Type
	v     *driver.Version
	seen  driver.Instant
}

// DocumentType is the name of the document's type.
func (c *FieldChange) DocumentType() string { return c.typ.Name }

// DocumentKey is the document's key.
func (c *FieldChange) DocumentKey() string { return c.v.Key }

// Version is the number of the version that made the change.
func (c *FieldChange) Version() int { return int(c.v.Number) }

// ChangedAt is when that version was recorded.
func (c *FieldChange) ChangedAt() driver.Instant { return c.v.RecordedAt }

// ChangedBy is who wrote it.
func (c *FieldChange) ChangedBy() *Actor { return &Actor{ID: c.v.Author} }

// Message is what the writer said about it; nil for nothing.
func (c *FieldChange) Message() *string { return optional(c.v.Message) }

// ChangeGroup is shared by what was written together; nil for none.
func (c *FieldChange) ChangeGroup() *string { return c.typ.groupOf(c.v) }

// Document is the document as this version left it; nil when it was deleted, and for what
// only a draft has changed.
func (c *FieldChange) Document() AnyDocument {
	if c.v.Deleted || c.typ.inDraft(c.v) {
		return nil
	}
	return c.store.wrapAny(c.store.newDocument(c.typ, c.v, c.v.RecordedAt, c.seen, true))
}

// FieldBlame says which version last set a value.
type FieldBlame struct {
	Path  string // JSON Pointer in GraphQL names: a field, or a leaf inside it
	Field string
	Value json.RawMessage

	v *driver.Version
}

// Version is the number of the version that set the value.
func (b *FieldBlame) Version() int { return int(b.v.Number) }

// ChangedAt is when that version was recorded.
func (b *FieldBlame) ChangedAt() driver.Instant { return b.v.RecordedAt }

// ChangedBy is who wrote it.
func (b *FieldBlame) ChangedBy() *Actor { return &Actor{ID: b.v.Author} }

// Message is what the writer said about it; nil for nothing.
func (b *FieldBlame) Message() *string { return optional(b.v.Message) }

// DocumentDiff is the difference between two states of a document.
type DocumentDiff struct {
	// From and To are nil for a moment before the first version.
	From, To *VersionInfo
	// Before and After are the states in GraphQL names; JSON null where the
	// document did not exist, or was deleted.
	Before, After json.RawMessage
	// JSONPatch leads from Before to After (RFC 6902).
	JSONPatch json.RawMessage
	changes   func() ([]*FieldChange, error)
}

// Changes are the differences, each with the version that made it: see
// Store.attribute. In a diff that leads back in time the values are those before
// and after the diff, and the version is the one that is taken back.
func (d *DocumentDiff) Changes() ([]*FieldChange, error) { return d.changes() }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
